// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"net/http"
	"time"
)

const (
	// unreachableGrace is how long a request to an unreachable provider waits for its return.
	unreachableGrace = 3 * time.Second
	// unreachableCheck is how often the state of the provider is checked in the meantime.
	unreachableCheck = time.Second
)

// unreachableTransport cancels requests that wait for the first byte of a response while the provider counts as unreachable. Otherwise
// a provider that accepts connections without responding would block them forever. A fixed timeout is not possible,
// because the response with the log of a silent container begins with its first line.
type unreachableTransport struct{ Remote }

// RoundTrip implements http.RoundTripper.
func (g unreachableTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.Unreachable == nil {
		return g.Transport.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context()) // canceled with the request
	answered := make(chan struct{})
	go g.watchProvider(ctx, cancel, answered)
	response, err := g.Transport.RoundTrip(r.WithContext(ctx))
	close(answered)
	if err != nil && r.Context().Err() == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return response, err
}

// watchProvider cancels the request if the provider stays unreachable, until the response has begun.
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
			wait.Reset(unreachableCheck)
		}
	}
}
