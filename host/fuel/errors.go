// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import "fmt"

// FormatError says that the binary is not a WebAssembly module, or a damaged one.
type FormatError struct {
	// Offset is the position in the binary, in bytes from its start, at which it stops making sense.
	Offset int
	// Section names the part being read: "header", "code", …
	Section string
	// Reason names the expected bytes.
	Reason string
}

// Error names the place and the reason.
func (e *FormatError) Error() string {
	return fmt.Sprintf("malformed wasm at byte %d (%s): %s", e.Offset, e.Section, e.Reason)
}

// UnsupportedError says that the module is built for a WebAssembly feature that plugins cannot use. The
// remedy is a compiler flag: build for the feature set of WebAssembly 2.0.
type UnsupportedError struct {
	// Offset is the position in the binary of the first use.
	Offset int
	// Feature names it the way the WebAssembly proposals do: "tail calls", "threads", …
	Feature string
}

// Error names the feature and where it is used.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("unsupported wasm feature at byte %d: %s; build the plugin for WebAssembly 2.0", e.Offset, e.Feature)
}

// LimitError says that the module asks for more than it may have, before any of it runs.
type LimitError struct {
	// The limited quantity: "locals of a function", "initial memory pages", …
	What string
	// Value is what the module has or asks for, Max what it may have.
	Value, Max uint64
	// Offset is the position in the binary.
	Offset int
}

// Error names the limit, its value and what the module asked for.
func (e *LimitError) Error() string {
	return fmt.Sprintf("wasm module over the limit of %s: %d, at most %d (byte %d)", e.What, e.Value, e.Max, e.Offset)
}

// CollisionError says that the module already exports a name that the host gives to one of its counters.
type CollisionError struct {
	// Export is the name in question, GlobalName or DepthName.
	Export string
}

// Error names the export and the remedy.
func (e *CollisionError) Error() string {
	return fmt.Sprintf("wasm module exports %q, which is reserved for the host: rename the export", e.Export)
}
