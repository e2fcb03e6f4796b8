// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package progress waits for clusters, and reports to the user what it waits for.
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

// Await calls look until it returns an empty missing or an error, or until ctx ends. Whenever missing changes, report gets it as a line
// that begins with what.
func Await(ctx context.Context, report func(line string), what string, look func(context.Context) (missing string, err error)) error {
	said := ""
	err := Poll(ctx, func(ctx context.Context) (bool, error) {
		missing, err := look(ctx)
		if err == nil && missing != "" && missing != said {
			report(what + ": " + missing)
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
