// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"cmp"

	"github.com/refract-project/refract/host/fuel"
)

// Limits are the limits of one plugin. A zero field means the default.
type Limits struct {
	// Fuel limits the work of a call, and of the start of an instance. An instruction costs about one unit. A call of
	// the host costs 256 units plus the price of its work. The default is 200 million units: 6–30 ms of the guest's
	// own code, or at most half a second of work by the host. In the portable tier, Fuel and MemoryPages are
	// increased with the size of the input.
	Fuel int64
	// MemoryPages limits the memory of one instance, in pages of 64 KiB. The default is 256 (16 MiB).
	MemoryPages int
	// OutputBytes limits the bytes that one call may write: values, keys, logs, warnings, and the output in the
	// portable tier. The default is 2 MiB, which is more than etcd accepts by default. In the portable tier, it is
	// increased with the size of the input.
	OutputBytes int
	// CallDepth limits the nesting of wasm functions. Small stack frames count as one level, larger ones as several.
	// The default is 65,536.
	CallDepth int
	// ModuleBytes limits the size of a module's binary. The default is 32 MiB.
	ModuleBytes int
	// Handles limits how many nodes of the object, the context and the configuration one call may visit. The default
	// is 262,144.
	Handles int
}

// DefaultLimits returns the values that apply where fields of Limits are zero.
func DefaultLimits() Limits {
	return Limits{
		Fuel:        fuel.DefaultStart,
		MemoryPages: fuel.DefaultMemoryPages,
		OutputBytes: 2 << 20,
		CallDepth:   fuel.DefaultCallDepth,
		ModuleBytes: 32 << 20,
		Handles:     1 << 18,
	}
}

// WithDefaults returns l with the values of d in fields that are zero.
func (l Limits) WithDefaults(d Limits) Limits {
	return Limits{
		Fuel:        cmp.Or(l.Fuel, d.Fuel),
		MemoryPages: cmp.Or(l.MemoryPages, d.MemoryPages),
		OutputBytes: cmp.Or(l.OutputBytes, d.OutputBytes),
		CallDepth:   cmp.Or(l.CallDepth, d.CallDepth),
		ModuleBytes: cmp.Or(l.ModuleBytes, d.ModuleBytes),
		Handles:     cmp.Or(l.Handles, d.Handles),
	}
}
