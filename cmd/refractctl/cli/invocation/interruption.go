// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/progress"
)

// ofCommand is the key of a context value that marks the context of a command, and all contexts derived from it.
type ofCommand struct{}

// WithInterruption makes the requests of a command and its subcommands end when the command is interrupted, even
// requests of libraries that pass no context.
func WithInterruption(command *cobra.Command, access *Access) {
	for _, child := range command.Commands() {
		WithInterruption(child, access)
	}
	run := command.RunE
	if run == nil {
		return
	}
	command.RunE = func(cmd *cobra.Command, args []string) error {
		cmd.SetContext(context.WithValue(cmd.Context(), ofCommand{}, true))
		access.command = cmd.Context()
		return progress.Ended(cmd.Context(), run(cmd, args))
	}
}

// endWhenInterrupted makes the clients of config end their requests when the command is interrupted.
func (a *Access) endWhenInterrupted(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &interruptible{next, a} })
}

// recordTimeout limits a write that Helm sends after an interruption. With a shorter timeout, a slow API server would
// not store that the release failed.
const recordTimeout = 5 * time.Second

// errInterrupted is returned instead of sending a read after an interruption.
var errInterrupted = fmt.Errorf("the command was interrupted before the request was sent, %w", context.Canceled)

// interruptible is a transport for requests that are not derived from the context of the command: discovery and Helm
// send their requests with context.Background. All other requests already end at the right time. In particular, a
// command removes its new objects even after an interruption.
type interruptible struct {
	next   http.RoundTripper
	access *Access
}

// RoundTrip implements http.RoundTripper. After the interruption, reads fail, and only writes are sent, because Helm
// then records that the release failed.
func (i *interruptible) RoundTrip(request *http.Request) (*http.Response, error) {
	command := i.access.command
	switch {
	case command == nil || request.Context().Value(ofCommand{}) != nil:
		return i.next.RoundTrip(request)
	case command.Err() == nil:
		return i.roundTripUntil(command, request)
	case request.Method == http.MethodGet:
		return nil, errInterrupted
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(command), recordTimeout)
	context.AfterFunc(limit, cancel)
	return i.roundTripUntil(limit, request)
}

// roundTripUntil cancels the request when the context command ends.
func (i *interruptible) roundTripUntil(command context.Context, request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request.Context())
	stop := context.AfterFunc(command, cancel)
	end := func() { stop(); cancel() }
	response, err := i.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	response.Body = &endingBody{response.Body, end}
	return response, nil
}

// WrappedRoundTripper returns the wrapped transport. client-go uses it to close idle connections.
func (i *interruptible) WrappedRoundTripper() http.RoundTripper { return i.next }

// endingBody is the body of a response. It calls end when it is closed.
type endingBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
