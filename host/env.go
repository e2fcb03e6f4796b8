// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"iter"
	"log/slog"
	"time"

	"github.com/refract-project/refract/host/internal/guest"
)

// Env contains the plugins' inputs other than the object, and the outcome. It should be reused: with an Env that was
// used before, Run itself usually allocates no memory. Env is not safe for concurrent use.
type Env struct {
	// Context is the context root, for example with cluster IDs and namespaces. It has the JSON types of an
	// unstructured object and is not modified.
	Context map[string]any
	// Domain limits the state that plugins may keep between objects: an instance that has run for one domain is reset
	// before it runs for another. If Domain is empty, the instance is reset before every call.
	Domain string
	// Namespace is the namespace of the object in the consumer's cluster, for selectors.
	Namespace string
	// Object is the consumer's object. Selectors use its labels. If Object is nil, the object of the document is used.
	// Object must be set for the hook Incoming, whose document contains the provider's object. The host does not modify
	// it.
	Object map[string]any
	// RemapIP translates an address, or a block of addresses in CIDR notation, for use in the cluster to which the
	// object is reflected. It returns false while there is no translation. If RemapIP is nil, no address has a
	// translation. It is called while a plugin's hook runs and must not block.
	RemapIP func(ip string) (string, bool)
	// Logger is the logger for log lines of plugins. If it is nil, the host's logger is used.
	Logger *slog.Logger
	// Measure enables the fields Fuel, Memory and Duration of Call. With Measure, the clock is read once more for
	// each plugin and once more at the start.
	Measure bool
	// Trace, if set, is called for each plugin that ran, with the plugin's edits. It is not called for a plugin that
	// failed or skipped the object, and not for values that the guard removes.
	Trace func(p *Plugin, edits iter.Seq[Edit])

	out Outcome
	// selected contains the bits of the selected plugins; see Chain.selectPlugins.
	selected uint64
	subject  map[string]any // the consumer's object, only set while selectors are evaluated

	guest guest.Env // what the guests may use of this Env
}

// Outcome is the result of a run. It is valid until the next Run with the same Env.
type Outcome struct {
	// Skipped reports whether a plugin has decided that the object is not reflected. Skipper is the name of the
	// plugin, and SkipReason its reason.
	Skipped    bool
	Skipper    string
	SkipReason string
	// Warnings contains the warnings of plugins for users, which are shown as Events. Each call may add 16 warnings,
	// and one more with the number of further warnings. Warnings of the guard have no plugin name.
	Warnings []Warning
	// Calls has one entry for each plugin that ran, in order.
	Calls []Call

	chain    *Chain // the chain, if it is selective
	selected uint64 // bits of the chain's selected plugins

	before int // number of warnings in earlier calls
}

// Warning is a plugin's message to the users of the object.
type Warning struct{ Plugin, Message string }

// Call contains the resources that the call of one plugin has used. Fuel, Memory and Duration are zero unless
// Env.Measure is set.
type Call struct {
	Plugin string
	// Fuel is the fuel that the call has used, in units. In a fresh instance, the same call uses the same fuel on
	// every machine.
	Fuel int64
	// Memory is the size of the instance's memory after the call, in bytes. It includes memory that earlier calls
	// have allocated.
	Memory int
	// Duration is the time since the end of the previous plugin, or since the start of the chain.
	Duration time.Duration
	// Err is the error of a failed plugin with IgnoreFailure, whose edits were dropped.
	Err error
}

func (o *Outcome) resetOutcome() {
	if len(o.Warnings) > 0 {
		clear(o.Warnings)
		o.Warnings = o.Warnings[:0]
	}
	o.Calls, o.chain = o.Calls[:0], nil
	if o.Skipped {
		o.Skipped, o.Skipper, o.SkipReason = false, "", ""
	}
}

// beginCall appends a Call. It reuses the memory of an earlier run.
func (o *Outcome) beginCall(plugin string) *Call {
	o.before = len(o.Warnings)
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

// forgetWarnings removes the warnings of the current call.
func (o *Outcome) forgetWarnings() { o.Warnings = o.Warnings[:o.before] }

func (o *Outcome) addWarning(plugin, message string) {
	o.Warnings = append(o.Warnings, Warning{Plugin: plugin, Message: message})
}
