// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often a condition is checked. With a longer interval, measured durations would be less
// accurate; a shorter one would affect the measurement.
const pollInterval = 100 * time.Millisecond

// Wait calls condition repeatedly until it returns an empty string. Otherwise condition returns a description of what
// is missing. If ctx is done, Wait returns an error with the last description. It also returns an error if a process
// has ended unexpectedly.
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
