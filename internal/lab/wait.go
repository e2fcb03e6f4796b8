// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often a condition is checked: often enough for times that are quoted, seldom enough not to
// take part in what is measured.
const pollInterval = 100 * time.Millisecond

// Wait polls until the condition holds. The condition returns what is still missing, or "" when it holds; what was missing
// last is in the error when the context ends first, or when one of our processes has ended meanwhile.
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

// failure reports a process of ours that ended without being asked to.
func (l *Lab) failure() error {
	for _, command := range l.running {
		if err := command.Failure(); err != nil {
			return err
		}
	}
	return nil
}
