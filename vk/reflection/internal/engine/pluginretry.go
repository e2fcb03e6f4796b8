// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// An object whose plugin failed is tried again although nothing changed: the cause may be gone, as another plugin version, a
// machine under load, or the state of an instance.
const (
	firstPluginRetry = 5 * time.Second
	mostPluginRetry  = 10 * time.Minute
)

// newPluginRetries returns the delays of such objects, which double with each failure until they are forgotten.
func newPluginRetries() workqueue.TypedRateLimiter[Key] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstPluginRetry, mostPluginRetry)
}
