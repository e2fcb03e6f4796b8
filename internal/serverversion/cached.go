// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package serverversion

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// CacheLifetime is how long a version is not read again. An upgrade of the API server is noticed this late.
const CacheLifetime = 5 * time.Minute

// Cached returns read with its results kept for CacheLifetime. Errors are not kept. The result may be called concurrently.
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
