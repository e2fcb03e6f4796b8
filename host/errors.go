// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
)

// LoadError is returned for a module that was refused. It may wrap one of the other errors: a start function may run
// out of fuel.
type LoadError struct {
	Plugin string
	Stage  Stage
	Err    error
}

// Stage is a stage of loading a module.
type Stage string

const (
	StageSize       Stage = "size"
	StageInstrument Stage = "format"
	StageCompile    Stage = "compile"
	StageImports    Stage = "imports"
	StageExports    Stage = "exports"
	StageStart      Stage = "start"
	StageVersion    Stage = "ABI version"
	StageManifest   Stage = "manifest"
	StageConfig     Stage = "configuration"
)

func (e *LoadError) Error() string {
	return fmt.Sprintf("loading plugin %q: checking its %s: %v", e.Plugin, e.Stage, e.Err)
}

func (e *LoadError) Unwrap() error { return e.Err }

// The errors of a call name the plugin and its phase: a hook, or "start" or "manifest" while the plugin is loaded.

// TrapError is a wasm trap: unreachable (usually a panic), access out of bounds, division by zero, …
type TrapError struct {
	Plugin, During string
	Err            error // includes the wasm stack trace
}

func (e *TrapError) Error() string {
	return fmt.Sprintf("plugin %q trapped in %s: %v", e.Plugin, e.During, e.Err)
}

func (e *TrapError) Unwrap() error { return e.Err }

// OutOfFuelError is returned for a call that did not end within its fuel.
type OutOfFuelError struct {
	Plugin, During string
	Fuel           int64 // budget of the call
}

func (e *OutOfFuelError) Error() string {
	return fmt.Sprintf("plugin %q used up its %d units of fuel in %s: does it loop, or does it need a higher fuel limit?", e.Plugin, e.Fuel, e.During)
}

// Limit names a limit other than fuel.
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

// LimitError is returned when a limit is exceeded.
type LimitError struct {
	Plugin, During string
	Limit          Limit
	Max            int64 // 0 = not configurable
}

func (e *LimitError) Error() string {
	limit := string(e.Limit)
	if e.Max != 0 {
		limit = strconv.FormatInt(e.Max, 10) + " " + limit
	}
	return fmt.Sprintf("plugin %q exceeded the limit of %s in %s", e.Plugin, limit, e.During)
}

// AccessError is returned when a plugin calls a host function with a bad handle, pointer, path or value, or on a value
// of another kind.
type AccessError struct {
	Plugin, During string
	Function       string // name in the ABI
	Problem        string // includes the path
}

func (e *AccessError) Error() string {
	return fmt.Sprintf("plugin %q made an invalid call to %s in %s: %s", e.Plugin, e.Function, e.During, e.Problem)
}

// PluginFailedError is returned when the plugin itself fails: by fail(), an Extism error, or a result other than 0.
type PluginFailedError struct {
	Plugin, During string
	Reason         string
}

func (e *PluginFailedError) Error() string {
	return fmt.Sprintf("plugin %q failed in %s: %s", e.Plugin, e.During, e.Reason)
}

// GuardError is returned for an edit that the guard or the plugin's manifest forbids.
type GuardError struct {
	Plugin string // empty if no plugin made the edit
	Hook   Hook
	Path   string
	Rule   string
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("plugin %q may not change %s in %s: %s", e.Plugin, e.Path, e.Hook, e.Rule)
}

// ClosedError is returned if the plugin was closed before the call began, because a swap replaced it. Run the current
// chain instead, as Registry.Run does.
type ClosedError struct{ Plugin string }

func (e *ClosedError) Error() string { return fmt.Sprintf("plugin %q is closed", e.Plugin) }

// enginePanic is a panic of wazero, for example because the address space is exhausted.
type enginePanic struct {
	of    string
	cause error
}

func panicError(of string, cause any) error {
	err, ok := cause.(error)
	if !ok {
		err = fmt.Errorf("%v", cause)
	}
	return &enginePanic{of, err}
}

func (e *enginePanic) Error() string { return "the " + e.of + " panicked: " + e.cause.Error() }

func (e *enginePanic) Unwrap() error { return e.cause }

// IsTransient reports whether Load may accept the same bytes later: the cause is the machine (memory, disk, file
// descriptors, time) or is unknown, as for a panic of the compiler.
func IsTransient(err error) bool {
	var (
		errno  syscall.Errno
		path   *fs.PathError
		panics *enginePanic
	)
	return errors.As(err, &errno) || errors.As(err, &path) || errors.As(err, &panics) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
