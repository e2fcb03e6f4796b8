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

// Interval is how often a cluster is asked while waiting.
const Interval = 250 * time.Millisecond

// Await calls look until it returns an empty missing or an error, or until ctx ends. Whenever missing changes, report gets it as a line
// that begins with what. An API server that is away is waited for, too. The error of an ended context has the command to continue.
func Await(ctx context.Context, report func(line string), what string, look func(context.Context) (missing string, err error)) error {
	said, away := "", false
	err := Poll(ctx, func(ctx context.Context) (bool, error) {
		missing, err := look(ctx)
		if cmdutil.Away(err) && !ended(ctx, err) {
			if !away { // the next error may have another port in it
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
	if ended(ctx, err) && said != "" {
		return &endedError{ctx.Err(), what + ": " + said}
	}
	return Ended(ctx, err)
}

// Poll returns when done returns true or an error, or when ctx ends: then with the last error of an unavailable API server, if any.
func Poll(ctx context.Context, done wait.ConditionWithContextFunc) error {
	var away error
	err := wait.PollUntilContextCancel(ctx, Interval, true, func(ctx context.Context) (bool, error) {
		is, err := done(ctx)
		if away = nil; cmdutil.Away(err) && !ended(ctx, err) {
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

// endedError is that of a command whose context has ended.
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

// Ended returns an error with the command to continue if err is caused by the end of ctx, else err.
func Ended(ctx context.Context, err error) error {
	var said *endedError
	if !ended(ctx, err) || errors.As(err, &said) {
		return err
	}
	return &endedError{ctx.Err(), err.Error()}
}

func ended(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, ctx.Err())
}
