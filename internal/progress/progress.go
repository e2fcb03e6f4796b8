// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package progress waits for clusters, and tells the user what for.
package progress

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Interval is how often a cluster is asked while waiting.
const Interval = 250 * time.Millisecond

// Await returns when look finds nothing missing, with its error, or when ctx ends. What is missing is told whenever it is something else,
// after what.
func Await(ctx context.Context, tell func(line string), what string, look func(context.Context) (missing string, err error)) error {
	said := ""
	err := Poll(ctx, func(ctx context.Context) (bool, error) {
		missing, err := look(ctx)
		if err == nil && missing != "" && missing != said {
			tell(what + ": " + missing)
			said = missing
		}
		return missing == "", err
	})
	if said != "" && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: %s, and the timeout is over; run the command again to go on", what, said)
	}
	return err
}

// Poll returns when done does not say no any more, or when ctx ends.
func Poll(ctx context.Context, done wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextCancel(ctx, Interval, true, done)
}
