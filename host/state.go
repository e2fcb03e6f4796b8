// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strconv"

	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/fuel"
)

// state is all state of an instance, as it is after the start. The start of a module has no input, so it is the same
// for all instances.
type state struct {
	memory  []byte
	globals []uint64
	random  uint64
	slept   int64
}

// findGlobals finds the globals that package fuel exports of a module whose state can be restored.
func (i *instance) findGlobals() {
	for n := 0; ; n++ {
		g, ok := i.mod.ExportedGlobal(fuel.StatePrefix + strconv.Itoa(n)).(api.MutableGlobal)
		if !ok {
			return
		}
		i.globals = append(i.globals, g)
	}
}

// saveState returns the state, or nil if it cannot be restored.
func (i *instance) saveState() *state {
	if len(i.globals) == 0 {
		return nil
	}
	s := &state{memory: slices.Clone(i.memory.bytes), random: i.random, slept: i.slept}
	for _, g := range i.globals {
		s.globals = append(s.globals, g.Get())
	}
	return s
}

// putBack resets the instance to its initial state. It returns false if that is impossible: memory that has grown stays
// larger, and the guest can read its size.
func (i *instance) putBack() bool {
	s := i.plugin.initial
	if s == nil || len(i.memory.bytes) != len(s.memory) || len(i.globals) != len(s.globals) {
		return false
	}
	copy(i.memory.bytes, s.memory)
	for n, g := range i.globals {
		g.Set(s.globals[n])
	}
	i.random, i.slept, i.startOutput = s.random, s.slept, 0
	// Handles contain the generation: it starts as in a new instance.
	i.generation = generationStep
	i.kernel.resetKernel()
	i.ran = false
	return true
}
