// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"net/http"
	"time"
)

const (
	// unreachableGrace is how long a request to an unreachable provider waits for the provider to become reachable.
	unreachableGrace = 3 * time.Second
	// unreachableCheckInterval is the interval at which a waiting request checks whether the provider is reachable.
	unreachableCheckInterval = time.Second
)

// unreachableTransport cancels requests that wait for the first byte of a response while the provider counts as
// unreachable. Otherwise, a provider that accepts connections without responding would block the requests forever. A
// fixed timeout is not possible: if a log is followed, the response begins only when the container writes its first
// line.
type unreachableTransport struct{ Remote }

// RoundTrip implements http.RoundTripper.
func (g unreachableTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.Unreachable == nil {
		return g.Transport.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context()) // ctx also ends when the caller's request ends
	answered := make(chan struct{})
	go g.watchProvider(ctx, cancel, answered)
	response, err := g.Transport.RoundTrip(r.WithContext(ctx))
	close(answered)
	if err != nil && r.Context().Err() == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return response, err
}

// watchProvider cancels the request if the provider remains unreachable for unreachableGrace. It returns when the
// response has begun.
func (g unreachableTransport) watchProvider(ctx context.Context, cancel context.CancelCauseFunc, answered <-chan struct{}) {
	wait := time.NewTimer(unreachableGrace)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-answered:
			return
		case <-wait.C:
			if err := g.Unreachable(); err != nil {
				cancel(err)
				return
			}
			wait.Reset(unreachableCheckInterval)
		}
	}
}
