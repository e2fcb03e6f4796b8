// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package progress waits for clusters, and reports the pending state to the user.
package progress

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/refract-project/refract/internal/cmdutil"
)

// Interval is how often a cluster is polled while waiting.
const Interval = 250 * time.Millisecond

// Await calls look until it returns an empty missing or an error, or until ctx is done. Whenever missing changes, report
// is called with a line that begins with what. Await also waits for an API server that is unavailable. The error of a
// context that is done contains the command to continue.
func Await(ctx context.Context, report func(line string), what string, look func(context.Context) (missing string, err error)) error {
	said, away := "", false
	err := Poll(ctx, func(ctx context.Context) (bool, error) {
		missing, err := look(ctx)
		if cmdutil.Away(err) && !isEnded(ctx, err) {
			// The port in the next error may differ.
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

// Poll returns when done returns true or an error, or when ctx is done. In the latter case the error includes the last
// error of an unavailable API server, if any.
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

// endedError is the error of a command whose context is done.
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

// Ended returns an error with the command to continue if ctx caused err, otherwise err.
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
