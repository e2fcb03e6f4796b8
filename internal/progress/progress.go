// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package progress waits for changes in clusters, and shows the user what a command is waiting for.
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

// Await calls look repeatedly until look returns an empty text or an error, or until ctx is done. The text, missing,
// describes what is not ready yet. Whenever it changes, Await calls report with a line that begins with what. Await
// also waits while the API server is unavailable. If ctx ends, the error tells the user to run the command again.
func Await(ctx context.Context, report func(line string), what string, look func(context.Context) (missing string, err error)) error {
	said, away := "", false
	err := Poll(ctx, func(ctx context.Context) (bool, error) {
		missing, err := look(ctx)
		if cmdutil.Away(err) && !isEnded(ctx, err) {
			// The error is reported only once, because it contains a port that differs in each attempt.
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

// Poll calls done repeatedly until it returns true or an error, or until ctx is done. If the API server was unavailable
// when ctx ended, the error includes the API server's last error.
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

// endedError is the error of a command that was stopped because its context ended.
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

// Ended returns an error that tells the user to run the command again, if err was caused by the end of ctx. Otherwise
// it returns err unchanged.
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
