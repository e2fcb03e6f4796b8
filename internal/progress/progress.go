// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package progress waits for changes in clusters, and shows the user which change a command is waiting for.
package progress

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/refract-project/refract/internal/cmdutil"
)

// Interval is how often a cluster is polled.
const Interval = 250 * time.Millisecond

// Await calls look until the returned text missing is empty, look returns an error, or ctx is done. Whenever missing
// changes, report is called with a line that begins with what. Await also waits for an API server that is
// unavailable. The error of a context that is done contains the command to continue.
func Await(ctx context.Context, report func(line string), what string, look func(context.Context) (missing string, err error)) error {
	said, away := "", false
	err := Poll(ctx, func(ctx context.Context) (bool, error) {
		missing, err := look(ctx)
		if cmdutil.Away(err) && !isEnded(ctx, err) {
			// The error is reported only once, because it contains a port that differs each time.
			if !away {
				away, said = true, "waiting for the API server, "+err.Error()
				report(what + ": " + said)
			}
			return false, err
		}
		if err == nil && missing != "" && missing != said {
			report(what + ": " + missing)
			said = missing
		}
		away = false
		return missing == "", err
	})
	if isEnded(ctx, err) && said != "" {
		return &endedError{ctx.Err(), what + ": " + said}
	}
	return Ended(ctx, err)
}

// Poll returns when done returns true or an error, or when ctx is done. If ctx is done and an API server was
// unavailable, the error includes the last error from the API server.
func Poll(ctx context.Context, done wait.ConditionWithContextFunc) error {
	var away error
	err := wait.PollUntilContextCancel(ctx, Interval, true, func(ctx context.Context) (bool, error) {
		is, err := done(ctx)
		if away = nil; cmdutil.Away(err) && !isEnded(ctx, err) {
			away = err
			return false, nil
		}
		return is, err
	})
	if away != nil && err != nil {
		return fmt.Errorf("%w: %w", err, away)
	}
	return err
}

// endedError is the error of a command whose context has ended.
type endedError struct {
	cause error
	what  string
}

func (e *endedError) Error() string {
	if errors.Is(e.cause, context.Canceled) {
		return "interrupted; run the command again to continue"
	}
	return fmt.Sprintf("timed out: %s; run the command again to continue", e.what)
}

func (e *endedError) Unwrap() error { return e.cause }

// Ended returns an error with the command to continue if err was caused by the end of ctx; if not, it returns err.
func Ended(ctx context.Context, err error) error {
	var said *endedError
	if !isEnded(ctx, err) || errors.As(err, &said) {
		return err
	}
	return &endedError{ctx.Err(), err.Error()}
}

func isEnded(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, ctx.Err())
}
