// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"slices"
	"strconv"

	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/fuel"
)

// state is the complete state of an instance after its start. All instances of a module have the same state after the
// start, because the start has no input.
type state struct {
	memory  []byte
	globals []uint64
	random  uint64
	slept   int64
}

// findGlobals finds the globals that package fuel has exported if the state of the module can be restored.
func (i *Instance) findGlobals() {
	for n := 0; ; n++ {
		g, ok := i.mod.ExportedGlobal(fuel.StatePrefix + strconv.Itoa(n)).(api.MutableGlobal)
		if !ok {
			return
		}
		i.globals = append(i.globals, g)
	}
}

// SaveState makes the current state the one to which Reset puts back every instance of the module. If the state cannot
// be restored, Reset will return false.
func (i *Instance) SaveState() {
	if len(i.globals) == 0 {
		return
	}
	s := &state{memory: slices.Clone(i.memory.bytes), random: i.random, slept: i.slept}
	for _, g := range i.globals {
		s.globals = append(s.globals, g.Get())
	}
	i.module.initial = s
}

// Reset resets the instance to its initial state. It returns false if this is not possible: if the state of the
// module cannot be restored, or if the memory has grown. The memory would stay larger, and the guest can read its size.
func (i *Instance) Reset() bool {
	s := i.module.initial
	if s == nil || len(i.memory.bytes) != len(s.memory) || len(i.globals) != len(s.globals) {
		return false
	}
	copy(i.memory.bytes, s.memory)
	for n, g := range i.globals {
		g.Set(s.globals[n])
	}
	i.random, i.slept, i.startOutput = s.random, s.slept, 0
	// The generation is part of the handles, and the guest can read these, so it must have the same value as in a new
	// instance.
	i.generation = generationStep
	i.kernel.resetKernel()
	return true
}
