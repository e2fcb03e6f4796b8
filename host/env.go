// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"log/slog"
	"time"
)

// Env is the plugins' input in addition to the object, and holds the outcome. Reuse it: Run allocates nothing with a
// used Env. It is not safe for concurrent use.
type Env struct {
	// Context is the context root (cluster IDs, namespaces, …), in JSON types as in an unstructured object. It is not
	// modified.
	Context map[string]any
	// Domain limits the state that plugins may carry from one object to another: an instance that has run for one
	// domain is reset before it runs for another. Every call with an empty Domain is a domain of its own.
	Domain string
	// RemapIP translates an address of the provider's network, and returns false while there is no mapping. If nil, no
	// address has a mapping. It is called in the middle of a plugin's hook: it must not block.
	RemapIP func(ip string) (string, bool)
	// Logger receives the log lines of plugins. If nil, the host's logger is used.
	Logger *slog.Logger
	// Measure fills in Call's Fuel, Memory and Duration. It costs one reading of the clock per plugin and one more.
	Measure bool

	out   Outcome
	ends  time.Time // when the chain must be over
	began time.Time // when the current call began
	// The slowest of the earlier calls, and its duration.
	slowest string
	longest time.Duration
	clock   time.Time     // arbitrary reference, so that only the monotonic clock is read
	last    time.Duration // previous reading
}

// Outcome is the result of a chain. It is valid until the next Run with the same Env.
type Outcome struct {
	// Skipped reports whether the plugin Skipper prevented the object from being reflected, for SkipReason.
	Skipped    bool
	Skipper    string
	SkipReason string
	// Warnings of plugins, to be shown as Events: the first 16 of each call, and one with the number of further
	// warnings. Warnings of the guard name no plugin.
	Warnings []Warning
	// Calls has an entry for each plugin that ran, in order.
	Calls []Call

	warned int // warnings of the current call
	before int // warnings of the earlier calls
}

// maxWarnings limits the warnings of a call: a plugin that warns about each of a thousand endpoints adds no information
// with the last ones.
const maxWarnings = 16

// Warning is a plugin's message to the users of the object.
type Warning struct{ Plugin, Message string }

// Call has the resources used by the call of one plugin. They are zero without Env.Measure.
type Call struct {
	Plugin string
	// Fuel is in units. The same call of a fresh instance uses the same fuel on every machine.
	Fuel int64
	// Memory is the size of the instance's memory at the end, in bytes. It includes memory allocated by earlier calls.
	Memory int
	// Duration counts from the end of the previous plugin, or from the start of the chain.
	Duration time.Duration
	// Err is the error of a plugin with IgnoreFailure. Its edits were dropped.
	Err error
}

// recordTurn records the end of a plugin's call and the beginning of the next.
func (e *Env) recordTurn(plugin string, now time.Time) {
	if took := now.Sub(e.began); e.slowest == "" || took > e.longest {
		e.slowest, e.longest = plugin, took
	}
	e.began = now
}

// lateError returns the error for a chain that timed out in the call of p. It names the slowest plugin.
func (e *Env) lateError(p *Plugin, during string, now time.Time) error {
	e.recordTurn(p.name, now)
	return &LimitError{Plugin: e.slowest, During: during, Limit: LimitTime, Max: int64(p.host.timeout.Seconds())}
}

// lapTime returns the time since the last lap.
func (e *Env) lapTime() time.Duration {
	if e.clock.IsZero() {
		e.clock = time.Now()
	}
	now := time.Since(e.clock)
	lap := now - e.last
	e.last = now
	return lap
}

func (o *Outcome) resetOutcome() {
	if len(o.Warnings) > 0 {
		clear(o.Warnings)
		o.Warnings = o.Warnings[:0]
	}
	o.Calls = o.Calls[:0]
	if o.Skipped {
		o.Skipped, o.Skipper, o.SkipReason = false, "", ""
	}
}

// beginCall appends a call, and reuses the memory of an earlier run.
func (o *Outcome) beginCall(plugin string) *Call {
	o.warned, o.before = 0, len(o.Warnings)
	n := len(o.Calls)
	if n < cap(o.Calls) {
		o.Calls = o.Calls[:n+1]
	} else {
		o.Calls = append(o.Calls, Call{})
	}
	c := &o.Calls[n]
	c.Plugin, c.Fuel, c.Memory, c.Duration = plugin, 0, 0, 0
	if c.Err != nil {
		c.Err = nil
	}
	return c
}

// pluginWarns adds a warning of a plugin, or only counts it above maxWarnings.
func (o *Outcome) pluginWarns(plugin, message string) {
	if o.warned++; o.warned <= maxWarnings {
		o.addWarning(plugin, message)
	}
}

// forgetWarnings drops the warnings of the current call.
func (o *Outcome) forgetWarnings() { o.Warnings, o.warned = o.Warnings[:o.before], 0 }

// endWarnings adds a warning with the number of warnings above maxWarnings.
func (o *Outcome) endWarnings(plugin string) {
	if more := o.warned - maxWarnings; more > 0 {
		o.addWarning(plugin, fmt.Sprintf("and %d more warnings", more))
		o.warned = 0
	}
}

func (o *Outcome) addWarning(plugin, message string) {
	o.Warnings = append(o.Warnings, Warning{Plugin: plugin, Message: message})
}
