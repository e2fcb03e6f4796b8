// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import "fmt"

// FormatError is returned for a binary that is not a WebAssembly module, or that is damaged.
type FormatError struct {
	// Offset is the position of the first invalid byte in the binary.
	Offset int
	// Section is the name of the part of the binary that was being read: "header", "code", and so on.
	Section string
	// Reason describes what is wrong with the bytes.
	Reason string
}

// Error returns a message with the position and the reason.
func (e *FormatError) Error() string {
	return fmt.Sprintf("malformed wasm at byte %d (%s): %s", e.Offset, e.Section, e.Reason)
}

// UnsupportedError is returned for a module that uses a WebAssembly feature that plugins must not use. The remedy is a
// compiler flag that builds the module for the features of WebAssembly 2.0.
type UnsupportedError struct {
	// Offset is the position in the binary at which the feature is first used.
	Offset int
	// Feature is the name of the feature, such as "tail calls" or "threads".
	Feature string
}

// Error returns a message with the feature and the position.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("unsupported wasm feature at byte %d: %s; build the plugin for WebAssembly 2.0", e.Offset, e.Feature)
}

// LimitError is returned for a module that exceeds a limit of Limits or Options.
type LimitError struct {
	// What is the name of the limited quantity, such as "locals of a function" or "initial memory pages".
	What string
	// Value is the quantity in the module, and Max is its limit.
	Value, Max uint64
	// Offset is the position in the binary at which the limit is exceeded.
	Offset int
}

// Error returns a message with the limit and the value.
func (e *LimitError) Error() string {
	return fmt.Sprintf("wasm module over the limit of %s: %d, at most %d (byte %d)", e.What, e.Value, e.Max, e.Offset)
}

// CollisionError is returned for a module that has an export with the name of one of the host's counters.
type CollisionError struct {
	// Export is the name of the export: GlobalName or DepthName.
	Export string
}

// Error returns a message with the export and the remedy.
func (e *CollisionError) Error() string {
	return fmt.Sprintf("wasm module exports %q, which is reserved for the host: rename the export", e.Export)
}
