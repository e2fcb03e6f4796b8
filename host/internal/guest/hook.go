// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

// Hook is the hook of a plugin for one direction of reflection.
type Hook int

const (
	// Outgoing is the hook for a consumer's object that is reflected to the provider.
	Outgoing Hook = iota
	// Incoming is the hook for a provider's object whose status is reflected back.
	Incoming

	hooks = 2
)

var hookNames = [hooks]string{"outgoing", "incoming"}

// String returns the name of the hook in a module's exports and manifest.
func (h Hook) String() string { return hookNames[h] }

// HookNames returns the names of all hooks.
func HookNames() []string { return hookNames[:] }
