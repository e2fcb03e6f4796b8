// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"log/slog"
	"time"
)

// Env is what the plugins of a call may see of the world, and where the outcome is put. Reuse it: a Run with a used Env
// allocates nothing. Not for concurrent use.
type Env struct {
	// Context is the context root: cluster ids, namespaces, … JSON types as in an unstructured object; not modified.
	Context map[string]any
	// RemapIP translates an address of the provider's network; false while there is no mapping. Nil never has one. It is
	// called in the middle of a plugin's hook: it must not block.
	RemapIP func(ip string) (string, bool)
	// Logger takes what plugins log; nil means the host's.
	Logger *slog.Logger
	// Measure fills in Call.Duration, at the price of two clock readings a plugin.
	Measure bool

	out Outcome
}

// Outcome is what a chain did. Valid until the next Run with the same Env.
type Outcome struct {
	// Skipped tells that a plugin asked not to reflect the object: Skipper, for SkipReason.
	Skipped    bool
	Skipper    string
	SkipReason string
	// Warnings of plugins, for Events.
	Warnings []Warning
	// Calls, one a plugin that ran, in order.
	Calls []Call
}

// Warning is a plugin's message to whoever looks at the object.
type Warning struct{ Plugin, Message string }

// Call tells what one plugin used.
type Call struct {
	Plugin string
	// Fuel in units, the same for the same call of a fresh instance everywhere.
	Fuel int64
	// Duration is zero unless Env.Measure.
	Duration time.Duration
	// Err of a plugin with IgnoreFailure, whose edits were dropped.
	Err error
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
	n := len(o.Calls)
	if n < cap(o.Calls) {
		o.Calls = o.Calls[:n+1]
	} else {
		o.Calls = append(o.Calls, Call{})
	}
	c := &o.Calls[n]
	c.Plugin, c.Fuel, c.Duration = plugin, 0, 0
	if c.Err != nil {
		c.Err = nil
	}
	return c
}

func (o *Outcome) warn(plugin, message string) {
	o.Warnings = append(o.Warnings, Warning{Plugin: plugin, Message: message})
}
