// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package serverversion

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// CacheLifetime is how long a version is cached, and therefore how long it can take to notice an upgrade of the API
// server.
const CacheLifetime = 5 * time.Minute

// Cached returns a function that caches the results of read for CacheLifetime. Errors are not cached. The function
// may be called concurrently.
func Cached(read func(context.Context) (string, error), clock clock.PassiveClock) func(context.Context) (string, error) {
	var mu sync.Mutex
	var known string
	var until time.Time
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		version, fresh := known, clock.Now().Before(until)
		mu.Unlock()
		if fresh {
			return version, nil
		}
		version, err := read(ctx)
		if err != nil {
			return "", err
		}
		mu.Lock()
		defer mu.Unlock()
		known, until = version, clock.Now().Add(CacheLifetime)
		return version, nil
	}
}
