// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

// LoadError tells why a module was not accepted.
type LoadError struct {
	Plugin string
	Stage  string // size, instrument, compile, imports, exports, start, version, manifest, config
	Err    error
}

// TrapError is a wasm trap: unreachable, out of bounds, division by zero, …
type TrapError struct {
	Plugin string
	Hook   Hook
	Err    error
}

// OutOfFuelError is a call that did not end within its fuel.
type OutOfFuelError struct {
	Plugin string
	Hook   Hook
	Fuel   int64
}

// LimitError is another limit passed: memory, output, handles, call depth, depth of nesting.
type LimitError struct {
	Plugin string
	Hook   Hook
	Limit  string
	Max    int64
}

// AccessError is a call of the ABI with a bad handle, pointer, path or kind.
type AccessError struct {
	Plugin   string
	Hook     Hook
	Function string
	Path     string
	Problem  string
}

// PluginFailedError is the plugin's own refusal, by fail() or a non-zero result.
type PluginFailedError struct {
	Plugin string
	Hook   Hook
	Reason string
}

// GuardError is an edit that the guard forbids.
type GuardError struct {
	Plugin string
	Hook   Hook
	Path   string
	Rule   string
}

// ClosedError: the plugin was closed (swapped out) before the call began; run the present chain instead.
type ClosedError struct{ Plugin string }

func (e *LoadError) Error() string {
	return "loading plugin " + e.Plugin + ", " + e.Stage + ": " + e.Err.Error()
}
func (e *LoadError) Unwrap() error      { return e.Err }
func (e *TrapError) Error() string      { return "plugin " + e.Plugin + " trapped" }
func (e *TrapError) Unwrap() error      { return e.Err }
func (e *OutOfFuelError) Error() string { return "plugin " + e.Plugin + " ran out of fuel" }
func (e *LimitError) Error() string {
	return "plugin " + e.Plugin + " exceeded its limit of " + e.Limit
}
func (e *AccessError) Error() string {
	return "plugin " + e.Plugin + ": " + e.Function + ": " + e.Problem
}
func (e *PluginFailedError) Error() string { return "plugin " + e.Plugin + " failed: " + e.Reason }
func (e *GuardError) Error() string        { return "plugin " + e.Plugin + " may not change " + e.Path }
func (e *ClosedError) Error() string       { return "plugin " + e.Plugin + " is closed" }
