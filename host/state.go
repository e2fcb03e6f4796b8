// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strconv"

	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/fuel"
)

// state is all that an instance can remember, as it is after the start. The start of a module gets no input: it is the same
// for all instances.
type state struct {
	memory  []byte
	globals []uint64
	random  uint64
	slept   int64
}

// findGlobals looks for what package fuel exports of a module whose state can be put back.
func (i *instance) findGlobals() {
	for n := 0; ; n++ {
		g, ok := i.mod.ExportedGlobal(fuel.StatePrefix + strconv.Itoa(n)).(api.MutableGlobal)
		if !ok {
			return
		}
		i.globals = append(i.globals, g)
	}
}

// save returns the state, or nil when it cannot be put back.
func (i *instance) save() *state {
	if len(i.globals) == 0 {
		return nil
	}
	s := &state{memory: slices.Clone(i.memory.bytes), random: i.random, slept: i.slept}
	for _, g := range i.globals {
		s.globals = append(s.globals, g.Get())
	}
	return s
}

// putBack puts the instance into the state of a new one. False when that cannot be done: memory that has grown stays
// larger, and its size can be read.
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
	i.generation = generationStep // the value in a new instance; handles contain it
	i.kernel.reset()
	i.ran = false
	return true
}
