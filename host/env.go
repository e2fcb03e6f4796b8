// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"log/slog"
	"time"
)

// Env is the input of the plugins of a call in addition to the object, and receives the outcome. Reuse it: a Run with a used Env
// allocates nothing. Not for concurrent use.
type Env struct {
	// Context is the context root: cluster ids, namespaces, … JSON types as in an unstructured object; not modified.
	Context map[string]any
	// Domain is what plugins may carry from one object to another: the next object of the same domain may find an instance
	// as the last one left it, one of another domain never does. Empty is a domain of its own at each call.
	Domain string
	// RemapIP translates an address of the provider's network; false while there is no mapping. Nil never has one. It is
	// called in the middle of a plugin's hook: it must not block.
	RemapIP func(ip string) (string, bool)
	// Logger takes what plugins log; nil means the host's.
	Logger *slog.Logger
	// Measure fills in Call's Fuel, Memory and Duration, at the price of a clock reading a plugin and one more.
	Measure bool

	out     Outcome
	ends    time.Time // when the chain must be over
	began   time.Time // when the present call began
	slowest string    // of those before it, with its time
	longest time.Duration
	clock   time.Time     // any time, to read the monotonic clock alone
	last    time.Duration // the reading before
}

// Outcome is the result of a chain. It is valid until the next Run with the same Env.
type Outcome struct {
	// Skipped reports whether a plugin asked not to reflect the object: Skipper, for SkipReason.
	Skipped    bool
	Skipper    string
	SkipReason string
	// Warnings of plugins, for Events: of each call the first 16, and one with the number of the others. Warnings of the guard name no plugin.
	Warnings []Warning
	// Calls, one a plugin that ran, in order.
	Calls []Call

	warned int // warnings of the present call
	before int // warnings of the calls before it
}

// maxWarnings of a call; a plugin that warns for each of a thousand endpoints says nothing more with the last.
const maxWarnings = 16

// Warning is a plugin's message to the users of the object.
type Warning struct{ Plugin, Message string }

// Call has the resources that the call of one plugin used. They are zero without Env.Measure.
type Call struct {
	Plugin string
	// Fuel in units, the same for the same call of a fresh instance everywhere.
	Fuel int64
	// Memory in bytes that the instance had at the end. It includes the memory of earlier calls.
	Memory int
	// Duration from the end of the plugin before, or the start of the chain.
	Duration time.Duration
	// Err of a plugin with IgnoreFailure, whose edits were dropped.
	Err error
}

// turn notes that the call of a plugin ends, and the next one begins.
func (e *Env) turn(plugin string, now time.Time) {
	if took := now.Sub(e.began); e.slowest == "" || took > e.longest {
		e.slowest, e.longest = plugin, took
	}
	e.began = now
}

// lateError says that the time of the chain is over in the call of p, and names the plugin that took the longest.
func (e *Env) lateError(p *Plugin, during string, now time.Time) error {
	e.turn(p.name, now)
	return &LimitError{Plugin: e.slowest, During: during, Limit: LimitTime, Max: int64(p.host.timeout.Seconds())}
}

// lap is the time since the last lap.
func (e *Env) lap() time.Duration {
	if e.clock.IsZero() {
		e.clock = time.Now()
	}
	now := time.Since(e.clock)
	lap := now - e.last
	e.last = now
	return lap
}

func (o *Outcome) reset() {
	if len(o.Warnings) > 0 {
		clear(o.Warnings)
		o.Warnings = o.Warnings[:0]
	}
	o.Calls = o.Calls[:0]
	if o.Skipped {
		o.Skipped, o.Skipper, o.SkipReason = false, "", ""
	}
}

// begin adds a call, in the place of one of an earlier run if there is one.
func (o *Outcome) begin(plugin string) *Call {
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

// pluginWarns adds a plugin's warning, or counts it.
func (o *Outcome) pluginWarns(plugin, message string) {
	if o.warned++; o.warned <= maxWarnings {
		o.warn(plugin, message)
	}
}

// forgetWarnings drops the warnings of the present call.
func (o *Outcome) forgetWarnings() { o.Warnings, o.warned = o.Warnings[:o.before], 0 }

// endWarnings reports what pluginWarns counted.
func (o *Outcome) endWarnings(plugin string) {
	if more := o.warned - maxWarnings; more > 0 {
		o.warn(plugin, fmt.Sprintf("and %d more warnings", more))
		o.warned = 0
	}
}

func (o *Outcome) warn(plugin, message string) {
	o.Warnings = append(o.Warnings, Warning{Plugin: plugin, Message: message})
}
