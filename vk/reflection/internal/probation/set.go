// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package probation

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/refract-project/refract/host"
)

// Set contains all probations of a virtual kubelet. Reading it takes one atomic load. A nil Set is empty. A Set is safe
// for concurrent use.
type Set struct {
	clock clock.PassiveClock
	all   atomic.Pointer[[]*Probation] // the slice is replaced as a whole and never modified
}

// NewSet returns an empty Set.
func NewSet(clock clock.PassiveClock) *Set { return &Set{clock: clock} }

// Replace replaces all probations.
func (s *Set) Replace(all []*Probation) { s.all.Store(&all) }

// Current returns the probations that have not ended yet.
func (s *Set) Current() (found []*Probation) {
	if s == nil {
		return nil
	}
	all := s.all.Load()
	if all == nil || len(*all) == 0 {
		return nil
	}
	now := s.clock.Now()
	for _, p := range *all {
		if now.Before(p.Until) {
			found = append(found, p)
		}
	}
	return found
}

// Evaluated counts a run of the current chain. before runs the previous chain on the same input. It is called only if a
// plugin on probation has failed.
func (s *Set) Evaluated(o Object, outcome *host.Outcome, err error, before func(Runner) (*host.Outcome, error)) {
	for _, p := range s.Current() {
		ran, failed := resultOf(p.Plugin, outcome, err)
		if ran {
			p.count(o, failed, func() bool {
				earlier, err := before(p.Previous)
				_, failed := resultOf(p.Plugin, earlier, err)
				return !failed && !isInvalidOutput(err)
			})
		}
		if err == nil && !outcome.Skipped {
			p.release(o)
		}
	}
}

// Release records that an object no longer needs a copy for a reason other than a skip: it does not exist any more or
// is not reflected.
func (s *Set) Release(o Object) {
	for _, p := range s.Current() {
		p.release(o)
	}
}

// ReleaseNamespace records that the objects of a kind in a namespace are no longer reflected.
func (s *Set) ReleaseNamespace(kind, namespace string) {
	for _, p := range s.Current() {
		p.releaseNamespace(kind, namespace)
	}
}

// InvalidOutputError means that no plugin of a chain failed, but the result is not a valid object.
type InvalidOutputError struct{ Err error }

func (e *InvalidOutputError) Error() string { return e.Err.Error() }
func (e *InvalidOutputError) Unwrap() error { return e.Err }

func isInvalidOutput(err error) bool {
	var invalid *InvalidOutputError
	return errors.As(err, &invalid)
}

// resultOf reports whether the plugin ran in a chain, and whether this plugin failed. Failures of other plugins do not
// count. An invalid result counts as a failure of each plugin that ran, because it is not known which of them caused
// it.
func resultOf(plugin string, outcome *host.Outcome, err error) (ran, failed bool) {
	if outcome == nil {
		return false, false
	}
	for i := range outcome.Calls {
		if call := &outcome.Calls[i]; call.Plugin == plugin {
			ran, failed = true, failed || call.Err != nil
		}
	}
	return ran, failed || ran && err != nil && (failedPlugin(err) == plugin || isInvalidOutput(err))
}

// failedPlugin returns the name of the plugin that caused the error of a chain, or "" if no plugin did.
func failedPlugin(err error) string {
	var (
		trap   *host.TrapError
		fuel   *host.OutOfFuelError
		limit  *host.LimitError
		access *host.AccessError
		failed *host.PluginFailedError
		guard  *host.GuardError
	)
	switch {
	case errors.As(err, &trap):
		return trap.Plugin
	case errors.As(err, &fuel):
		return fuel.Plugin
	case errors.As(err, &limit):
		return limit.Plugin
	case errors.As(err, &access):
		return access.Plugin
	case errors.As(err, &failed):
		return failed.Plugin
	case errors.As(err, &guard):
		return guard.Plugin
	}
	return ""
}

// MayRemove returns a *HeldError if the copy of a skipped object must be kept: a revision on probation has caused the
// skip, and the permitted number of copies has already been deleted. before runs the previous chain on the same input.
// If the previous chain fails, the copy is kept, too, because the previous chain would not have deleted it.
func (s *Set) MayRemove(o Object, before func(Runner) (*host.Outcome, error)) error {
	for _, p := range s.Current() {
		if earlier, err := before(p.Previous); err == nil && earlier.Skipped || p.mayRemove(o) {
			continue
		}
		return &HeldError{Plugin: p.Plugin, Revision: p.Revision, Until: p.Until, Left: p.Until.Sub(s.clock.Now())}
	}
	return nil
}

// HeldError means that a copy must not be deleted during a probation.
type HeldError struct {
	Plugin, Revision string
	Until            time.Time     // when the probation ends
	Left             time.Duration // remaining time of the probation
}

// Error returns a message with the end of the probation instead of the remaining time, so that the message is the same
// for every attempt.
func (e *HeldError) Error() string {
	return fmt.Sprintf("the copy is not removed yet, because only revision %s of plugin %s skips the object: the removal is held until %s, the end of the probation. "+
		"To remove it earlier, shorten spec.rollout.probation of the ReflectionPlugin; to keep it, roll the plugin back", e.Revision, e.Plugin, e.Until.UTC().Format(time.RFC3339))
}

var heldDesc = prometheus.NewDesc("refract_plugin_removals_held", "Copies that are not removed although a plugin skips their objects, because its revision is on probation.", []string{"plugin", "revision"}, nil)

// Describe implements prometheus.Collector.
func (s *Set) Describe(descs chan<- *prometheus.Desc) { descs <- heldDesc }

// Collect implements prometheus.Collector.
func (s *Set) Collect(metrics chan<- prometheus.Metric) {
	all := s.all.Load()
	if all == nil {
		return
	}
	for _, p := range *all {
		held := 0
		if s.clock.Now().Before(p.Until) {
			held = p.Held()
		}
		metrics <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(held), p.Plugin, p.Revision)
	}
}
