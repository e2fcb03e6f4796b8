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

// tryAcquire acquires the semaphore if this is possible at once. If it returns true, the caller must release the semaphore.
func (s semaphore) tryAcquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s semaphore) release() { <-s }
