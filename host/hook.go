// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

// Hook is the direction of reflection.
type Hook int

const (
	// Outgoing is a consumer's object on its way to the provider.
	Outgoing Hook = iota
	// Incoming is a provider's object whose status is on its way back.
	Incoming

	hooks = 2
)

var hookNames = [hooks]string{"outgoing", "incoming"}

// String is the name of the module's export and of the manifest's entry.
func (h Hook) String() string { return hookNames[h] }
