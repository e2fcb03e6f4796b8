// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"net/http"
	"time"
)

const (
	// unreachableGrace is given to a provider that counts as unreachable and may be back.
	unreachableGrace = 3 * time.Second
	// unreachableCheck is how often it is asked meanwhile whether it still does.
	unreachableCheck = time.Second
)

// giveUp sends requests, and gives up those that wait for the first byte of an
// answer while the provider counts as unreachable. A provider that accepts
// connections and says nothing would hold them forever otherwise: there is no
// time after which an answer must have begun, as the log of a silent container
// begins with its first line.
type giveUp struct{ Remote }

// RoundTrip implements http.RoundTripper.
func (g giveUp) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.Unreachable == nil {
		return g.Transport.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context()) // ends with the request
	answered := make(chan struct{})
	go g.watch(ctx, cancel, answered)
	response, err := g.Transport.RoundTrip(r.WithContext(ctx))
	close(answered)
	if err != nil && r.Context().Err() == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return response, err
}

// watch cancels when there is no hope, until the answer has begun.
func (g giveUp) watch(ctx context.Context, cancel context.CancelCauseFunc, answered <-chan struct{}) {
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
