// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAwait(t *testing.T) {
	t.Parallel()
	var told []string
	tell := func(line string) { told = append(told, line) }
	states := []string{"not there", "not there", "not ready", ""}
	err := Await(t.Context(), tell, "node milan", func(context.Context) (string, error) {
		state := states[0]
		states = states[1:]
		return state, nil
	})
	assert.NoError(t, err)
	assert.Equal(t, []string{"node milan: not there", "node milan: not ready"}, told)

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err = Await(ctx, tell, "node milan", func(context.Context) (string, error) { return "not there", nil })
	assert.EqualError(t, err, "timed out: node milan: not there; run the command again to continue")
	assert.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel = context.WithCancel(t.Context())
	err = Await(ctx, tell, "node milan", func(context.Context) (string, error) {
		cancel()
		return "not there", nil
	})
	assert.EqualError(t, err, "interrupted; run the command again to continue")
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, err, Ended(ctx, err))
	assert.EqualError(t, Ended(ctx, fmt.Errorf("getting node milan, %w", context.Canceled)), "interrupted; run the command again to continue")

	failed := errors.New("forbidden")
	assert.ErrorIs(t, Await(t.Context(), tell, "node milan", func(context.Context) (string, error) { return "", failed }), failed)
	assert.Equal(t, failed, Ended(ctx, failed), "the error is not that of the context")
}

// TestAwaitTheAPIServer checks that Await waits for an API server that is unavailable, and reports this once.
func TestAwaitTheAPIServer(t *testing.T) {
	t.Parallel()
	var told []string
	tell := func(line string) { told = append(told, line) }
	attempts := 0
	away := func() error {
		attempts++
		return fmt.Errorf("getting node milan, %w", &url.Error{Op: "Get", URL: "https://milan", Err: fmt.Errorf("attempt %d is refused", attempts)})
	}
	states := []error{away(), away(), nil, away(), nil}
	err := Await(t.Context(), tell, "node milan", func(context.Context) (string, error) {
		err := states[0]
		states = states[1:]
		if len(states) == 2 {
			return "not ready", err
		}
		return "", err
	})
	assert.NoError(t, err)
	assert.Equal(t, []string{
		`node milan: waiting for the API server, getting node milan, Get "https://milan": attempt 1 is refused`, "node milan: not ready",
		`node milan: waiting for the API server, getting node milan, Get "https://milan": attempt 3 is refused`,
	}, told)

	ctx, cancel := context.WithTimeout(t.Context(), 2*Interval)
	defer cancel()
	attempts = 0
	err = Await(ctx, tell, "node milan", func(context.Context) (string, error) { return "", away() })
	assert.EqualError(t, err, `timed out: node milan: waiting for the API server, getting node milan, Get "https://milan": attempt 1 is refused; run the command again to continue`)
	ctx, cancel = context.WithTimeout(t.Context(), 2*Interval)
	defer cancel()
	err = Poll(ctx, func(context.Context) (bool, error) { return false, away() })
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "is refused")

	// A request that fails because of the timeout is reported like any other timeout.
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	attempts = 0
	err = Await(ctx, tell, "node milan", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", away()
	})
	assert.EqualError(t, err, `timed out: node milan: waiting for the API server, getting node milan, Get "https://milan": attempt 1 is refused; run the command again to continue`)
}
