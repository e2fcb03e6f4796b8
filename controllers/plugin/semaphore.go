// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
)

// semaphore limits the number of its holders to its capacity.
type semaphore chan struct{}

// hold returns functions that acquire and release the semaphore for one holder. Further calls of acquire have no effect until release.
func (s semaphore) hold() (acquire func(context.Context) error, release func()) {
	isHeld := false
	acquire = func(ctx context.Context) error {
		if isHeld {
			return nil
		}
		select {
		case s <- struct{}{}:
			isHeld = true
			return nil
		case <-ctx.Done():
			return fmt.Errorf("waiting until the modules of other plugins are fetched, %w", ctx.Err())
		}
	}
	return acquire, func() {
		if isHeld {
			isHeld = false
			<-s
		}
	}
}
