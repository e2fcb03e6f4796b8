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

// LoadError is returned if a module cannot be loaded. It may wrap one of the other errors, because a start function
// may run out of fuel, for example.
type LoadError struct {
	Plugin string
	Stage  Stage
	Err    error
	// Manifest is the manifest of the module, or nil if loading failed before the manifest was read.
	Manifest *Manifest
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

// GuardError is returned for an edit that the guard or the plugin's manifest forbids.
type GuardError struct {
	Plugin string // name of the plugin; empty if no plugin made the edit
	Hook   Hook
	Path   string
	Rule   string
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("plugin %q may not change %s in %s: %s", e.Plugin, e.Path, e.Hook, e.Rule)
}

// HeldError is returned for an object that must wait because a plugin that should run on it cannot be run. No plugin
// has run, and the object must not be written.
type HeldError struct {
	// Kind is the kind of the chain.
	Kind   string
	Plugin string
	// Reason describes why the plugin cannot be run. It is a text and not an error, so that errors.As finds no other
	// error of this package in a HeldError.
	Reason string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("kind %s is held, because plugin %q cannot run: %s", e.Kind, e.Plugin, e.Reason)
}

// SelectorError is returned if it is not known whether a plugin should run on the object. No plugin has run, and the
// object must not be written.
type SelectorError struct {
	Plugin string
	Err    error
}

func (e *SelectorError) Error() string {
	return fmt.Sprintf("it is unknown whether plugin %q runs on the object: %v", e.Plugin, e.Err)
}

func (e *SelectorError) Unwrap() error { return e.Err }

// ClosedError is returned if the plugin was closed before the call, because another version has replaced it. A caller
// must then run the current chain, as Registry.Run does.
type ClosedError struct{ Plugin string }

func (e *ClosedError) Error() string { return fmt.Sprintf("plugin %q is closed", e.Plugin) }

// enginePanic is a panic in wazero, for example because the address space is exhausted.
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

// IsTransient reports whether Load may succeed later with the same bytes. This is the case if the cause is the
// machine (memory, disk, file descriptors, time), or is unknown, as for a panic in the compiler.
func IsTransient(err error) bool {
	var (
		errno  syscall.Errno
		path   *fs.PathError
		panics *enginePanic
	)
	return errors.As(err, &errno) || errors.As(err, &path) || errors.As(err, &panics) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
