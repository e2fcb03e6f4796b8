// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often a condition is checked. A longer interval makes the measured times inexact; a shorter one
// affects the measurement.
const pollInterval = 100 * time.Millisecond

// Wait polls until the condition holds. The condition returns a description of the missing part, or an empty string when
// it holds. If the context or one of the processes ends first, the error contains the last description.
func (l *Lab) Wait(ctx context.Context, what string, condition func(ctx context.Context) (missing string, err error)) error {
	last := "nothing was seen yet"
	for {
		missing, err := condition(ctx)
		switch {
		case err == nil && missing == "":
			return nil
		case err == nil:
			last = missing
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
			last = err.Error()
		}
		if err := l.failure(); err != nil {
			return fmt.Errorf("waiting for %s, %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s, %w: %s", what, context.Cause(ctx), last)
		case <-time.After(pollInterval):
		}
	}
}

// failure returns an error if a process has ended unexpectedly.
func (l *Lab) failure() error {
	for _, command := range l.running {
		if err := command.Failure(); err != nil {
			return err
		}
	}
	return nil
}
