// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package invocation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/progress"
)

// AttemptEach calls do for each name, and returns the names that succeeded.
func AttemptEach(names []string, do func(name string) error) ([]string, error) {
	var done []string
	var problems []error
	for _, name := range names {
		if err := do(name); err != nil {
			problems = append(problems, err)
		} else {
			done = append(done, name)
		}
	}
	return done, errors.Join(problems...)
}

// NoController is the state that is shown until a controller has reconciled an object.
const NoController = "waiting for the controller manager of this cluster"

// AwaitOne calls look until it returns true for the object with the given kind and name, and prints the state of the
// object whenever it changes. It keeps waiting while an API server is unavailable.
func AwaitOne(ctx context.Context, out io.Writer, kind, name string, timeout time.Duration, look func(context.Context) (bool, string, error)) error {
	said := ""
	err := progress.Poll(ctx, func(ctx context.Context) (bool, error) {
		done, state, err := look(ctx)
		if cmdutil.Away(err) && ctx.Err() == nil {
			said = "waiting for the API server, " + err.Error()
		}
		if err == nil && state != said {
			said = state
			WriteWaiting(out, name, state)
		}
		return done, err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if said == NoController {
			said += ", which does not answer (does it run?)"
		}
		if said == "" {
			said = err.Error()
		}
		return WithCode(ExitTimedOut, fmt.Errorf("%s %s: not done after %s: %s; the controllers continue (check with: refractctl info, or set a longer --timeout)", kind, name, timeout, said))
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: no longer waiting: %s; the controllers continue (check with: refractctl info)", kind, name, said)
	}
	return err
}

// DrainTimeout limits how long a drain may take. Pods have a grace period, and disruption budgets may delay their
// eviction.
const DrainTimeout = 10 * time.Minute
