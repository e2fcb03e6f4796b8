// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/refract-project/refract/host"
)

// An object whose plugin failed is tried again although nothing changed, because the cause may be gone: another version
// of a plugin, an overloaded machine, or the state of an instance.
const (
	firstPluginRetry = 5 * time.Second
	mostPluginRetry  = 10 * time.Minute
)

// newPluginRetries returns the delays of objects whose plugin failed. A delay doubles with each failure of a direction
// until its chain succeeds.
func newPluginRetries() retries {
	return retries{workqueue.NewTypedItemExponentialFailureRateLimiter[attempt](firstPluginRetry, mostPluginRetry)}
}

// chainRun records whether the chain of one direction ran in an evaluation, and whether a plugin with ignoreFailure
// failed in it. The object crosses without the edits of this plugin.
type chainRun struct{ ran, ignored bool }

// chainRuns has the chainRun of each direction.
type chainRuns struct{ outgoing, incoming chainRun }

// direction returns the chainRun of a direction.
func (c *chainRuns) direction(d Direction) *chainRun {
	if d == Back {
		return &c.incoming
	}
	return &c.outgoing
}

// record records a run of the chain of a hook.
func (c *chainRuns) record(hook host.Hook, outcome *host.Outcome) {
	run := c.direction(Out)
	if hook == host.Incoming {
		run = c.direction(Back)
	}
	run.ran = true
	if outcome == nil {
		return
	}
	for i := range outcome.Calls {
		run.ignored = run.ignored || outcome.Calls[i].Err != nil
	}
}

// IgnoredPluginFailure reports whether a plugin with ignoreFailure has failed in this evaluation.
func (w *Worker) IgnoredPluginFailure() bool {
	return w.chains.outgoing.ignored || w.chains.incoming.ignored
}

// retryIgnored enqueues an object again if a plugin with ignoreFailure failed in a direction that otherwise succeeded.
// The delay of a direction is reset only when its chain has run without a failure.
func (r *reflector) retryIgnored(w *Worker, key Key, d Direction) {
	switch run := w.chains.direction(d); {
	case run.ignored:
		r.queue.AddAfter(key, r.pluginRetries.next(key, d))
	case run.ran:
		r.pluginRetries.succeeded(key, d)
	}
}

// forget resets the delays of both directions of an object.
func (r retries) forget(key Key) {
	r.succeeded(key, Out)
	r.succeeded(key, Back)
}
