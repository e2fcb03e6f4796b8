// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import "fmt"

// FormatError is returned for a binary that is not a WebAssembly module, or is damaged.
type FormatError struct {
	// Offset is the position of the first invalid byte in the binary.
	Offset int
	// Section names the part that was being read: "header", "code", …
	Section string
	// Reason names the expected bytes.
	Reason string
}

// Error returns a message with the position and the reason.
func (e *FormatError) Error() string {
	return fmt.Sprintf("malformed wasm at byte %d (%s): %s", e.Offset, e.Section, e.Reason)
}

// UnsupportedError is returned for a module that uses a WebAssembly feature that plugins cannot use. The remedy is a
// compiler flag: build for the feature set of WebAssembly 2.0.
type UnsupportedError struct {
	// Offset is the position of the first use in the binary.
	Offset int
	// Feature is the name of the WebAssembly proposal: "tail calls", "threads", …
	Feature string
}

// Error returns a message with the feature and the position.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("unsupported wasm feature at byte %d: %s; build the plugin for WebAssembly 2.0", e.Offset, e.Feature)
}

// LimitError is returned for a module that exceeds a limit before it runs.
type LimitError struct {
	// What is the limited quantity: "locals of a function", "initial memory pages", …
	What string
	// Value is the quantity in the module, Max its limit.
	Value, Max uint64
	// Offset is the position in the binary.
	Offset int
}

// Error returns a message with the limit and the value.
func (e *LimitError) Error() string {
	return fmt.Sprintf("wasm module over the limit of %s: %d, at most %d (byte %d)", e.What, e.Value, e.Max, e.Offset)
}

// CollisionError is returned for a module that already exports the name of one of the host's counters.
type CollisionError struct {
	// Export is the name of the export: GlobalName or DepthName.
	Export string
}

// Error returns a message with the export and the remedy.
func (e *CollisionError) Error() string {
	return fmt.Sprintf("wasm module exports %q, which is reserved for the host: rename the export", e.Export)
}
