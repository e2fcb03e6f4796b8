// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/refract-project/refract/host/internal/compiler"
	"github.com/refract-project/refract/host/internal/guest"
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
type (
	// TrapError is a trap of the guest: unreachable (usually a panic), an access out of bounds, a division by zero,
	// and so on.
	TrapError = guest.TrapError
	// OutOfFuelError is returned for a call that has used up its fuel before its end.
	OutOfFuelError = guest.OutOfFuelError
	// LimitError is returned if a call exceeds a limit other than fuel.
	LimitError = guest.LimitError
	// AccessError is returned if a plugin calls a host function with an invalid handle, pointer, path or value, or if
	// the function does not support the kind of the value.
	AccessError = guest.AccessError
	// PluginFailedError is returned if the plugin itself reports a failure: with fail(), with an Extism error, or with
	// a result other than 0.
	PluginFailedError = guest.PluginFailedError
)

// Limit names a limit of a call other than fuel.
type Limit = guest.Limit

// The limits that a LimitError names.
const (
	LimitMemory    = guest.LimitMemory
	LimitOutput    = guest.LimitOutput
	LimitCallDepth = guest.LimitCallDepth
	LimitModule    = guest.LimitModule
	LimitHandles   = guest.LimitHandles
	LimitNesting   = guest.LimitNesting
	LimitTime      = guest.LimitTime
)

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

// IsTransient reports whether Load may succeed later with the same bytes. This is the case if the cause is the
// machine (memory, disk, file descriptors, time), or is unknown, as for a panic in the compiler.
func IsTransient(err error) bool {
	var (
		errno  syscall.Errno
		path   *fs.PathError
		panics *compiler.PanicError
	)
	return errors.As(err, &errno) || errors.As(err, &path) || errors.As(err, &panics) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
