// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"strconv"
)

// The errors of a call contain the name of the plugin and the phase (During). The phase is a hook or, while the plugin
// is loaded, "load", "start" or the name of the called export.

// TrapError is a trap of the guest: unreachable (usually a panic), an access out of bounds, a division by zero, and
// so on.
type TrapError struct {
	Plugin, During string
	Err            error // includes the wasm stack trace
}

func (e *TrapError) Error() string {
	return fmt.Sprintf("plugin %q trapped in %s: %v", e.Plugin, e.During, e.Err)
}

func (e *TrapError) Unwrap() error { return e.Err }

// OutOfFuelError is returned for a call that has used up its fuel before its end.
type OutOfFuelError struct {
	Plugin, During string
	Fuel           int64 // fuel of the call
}

func (e *OutOfFuelError) Error() string {
	return fmt.Sprintf("plugin %q used up its %d units of fuel in %s: does it loop, or does it need a higher fuel limit?", e.Plugin, e.Fuel, e.During)
}

// Limit names a limit of a call other than fuel.
type Limit string

const (
	LimitMemory    Limit = "memory pages"
	LimitOutput    Limit = "output bytes"
	LimitCallDepth Limit = "call depth"
	LimitModule    Limit = "module bytes"
	LimitHandles   Limit = "handles"
	LimitNesting   Limit = "nesting of values"
	LimitTime      Limit = "seconds for the whole chain"
)

// LimitError is returned if a call exceeds a limit other than fuel.
type LimitError struct {
	Plugin, During string
	Limit          Limit
	Max            int64 // the limit; 0 if it cannot be configured
}

func (e *LimitError) Error() string {
	limit := string(e.Limit)
	if e.Max != 0 {
		limit = strconv.FormatInt(e.Max, 10) + " " + limit
	}
	return fmt.Sprintf("plugin %q exceeded the limit of %s in %s", e.Plugin, limit, e.During)
}

// AccessError is returned if a plugin calls a host function with an invalid handle, pointer, path or value, or if the
// function does not support the kind of the value.
type AccessError struct {
	Plugin, During string
	Function       string // name of the function in the ABI
	Problem        string // description with the path
}

func (e *AccessError) Error() string {
	return fmt.Sprintf("plugin %q made an invalid call to %s in %s: %s", e.Plugin, e.Function, e.During, e.Problem)
}

// PluginFailedError is returned if the plugin itself reports a failure: with fail(), with an Extism error, or with a
// result other than 0.
type PluginFailedError struct {
	Plugin, During string
	Reason         string
}

func (e *PluginFailedError) Error() string {
	return fmt.Sprintf("plugin %q failed in %s: %s", e.Plugin, e.During, e.Reason)
}
