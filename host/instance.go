// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/document"
)

// instance is one running copy of a module: its own memory, one call at a time. It is the context.Context of its calls:
// host functions need no lookup to find it.
type instance struct {
	context.Context // Background: nothing in a call waits

	plugin *Plugin
	mod    api.Module
	mem    api.Memory // nil when the module exports none
	memory memory
	fuel   api.MutableGlobal // nil when unmetered
	depth  api.Global
	hooks  [hooks]api.Function
	stack  [1]uint64

	// The present call. doc is nil outside of hooks.
	during     string
	budget     int64 // fuel at its start
	doc        *document.Document
	env        *Env
	floor      int    // nodes of the document that earlier plugins made
	generation uint64 // of handles, in their upper bits
	skipped    bool
	failed     bool
	reason     string

	encoded    []byte // the last result of json, for the retry with a larger buffer
	encodedFor document.View
	encodedAt  uint64
	keyScratch []string
	kernel     kernel
	random     uint64 // state of WASI's random_get
}

const (
	indexBits      = 20
	indexMask      = 1<<indexBits - 1
	generationStep = 1 << indexBits
	generationMask = 0xFFFFFFFF &^ indexMask
)

var (
	errMemoryRefused = errors.New("more memory than the limit allows")
	errOutOfFuel     = errors.New("out of fuel")
)

// run calls a hook on the document. The instance must be discarded after any error but a PluginFailedError.
func (i *instance) run(hook Hook, doc *document.Document, env *Env, author uint8) (Call, error) {
	var start time.Time
	if env.Measure {
		start = time.Now()
	}
	p := i.plugin
	doc.SetAuthor(author)
	doc.Mount(document.ConfigRoot, p.config)
	doc.SetBudget(p.limits.Handles, p.limits.OutputBytes)
	i.begin(hook.String(), p.limits.Fuel)
	i.doc, i.env, i.floor = doc, env, doc.Nodes()
	i.generation = (i.generation + generationStep) & generationMask
	if i.generation == 0 {
		i.generation = generationStep
	}
	err := i.invoke(hook)
	i.doc, i.env, i.encodedFor = nil, nil, document.View{}
	call := Call{Plugin: p.name, Fuel: i.used()}
	if env.Measure {
		call.Duration = time.Since(start)
	}
	return call, err
}

func (i *instance) invoke(hook Hook) error {
	if i.plugin.portable {
		return i.invokePortable(hook)
	}
	if err := i.hooks[hook].CallWithStack(i, i.stack[:]); err != nil {
		return i.classify(err)
	}
	if uint32(i.stack[0]) != 0 || i.failed {
		return i.refusal()
	}
	return nil
}

// refusal is the plugin's own error.
func (i *instance) refusal() error {
	reason := i.reason
	if !i.failed && len(i.kernel.err) > 0 {
		reason = string(i.kernel.err)
	}
	if reason == "" {
		reason = "it gave no reason"
	}
	return &PluginFailedError{Plugin: i.plugin.name, During: i.during, Reason: reason}
}

// begin gives the next call its fuel and forgets the last one.
func (i *instance) begin(during string, budget int64) {
	i.during, i.budget = during, budget
	i.skipped, i.failed, i.reason = false, false, ""
	i.memory.refused = false
	if i.kernel.used {
		i.kernel.reset()
	}
	i.refuel(budget)
}

func (i *instance) refuel(units int64) {
	if i.fuel != nil {
		i.fuel.Set(uint64(units))
	}
}

// left is the fuel that is left; negative when it ran out.
func (i *instance) left() int64 {
	if i.fuel == nil {
		return i.budget
	}
	return int64(i.fuel.Get())
}

func (i *instance) used() int64 { return i.budget - max(i.left(), 0) }

// charge takes fuel for the host's own work: without it a plugin could make the host do what it may not do itself.
func (i *instance) charge(units int64) {
	left := i.left() - units
	i.refuel(max(left, -1))
	if left < 0 {
		panic(errOutOfFuel)
	}
}

// settle charges what a document operation did beyond a constant.
func (i *instance) settle() {
	if w := i.doc.TakeWork(); w > 0 {
		i.charge(w)
	}
}

// spend counts output bytes.
func (i *instance) spend(function string, n int) {
	i.charge(int64(n) / 8)
	if i.doc == nil {
		return
	}
	if err := i.doc.Spend(n); err != nil {
		i.abort(function, err)
	}
}

// text is a string in the guest's memory, borrowed: valid until the guest runs on.
func (i *instance) text(function string, ptr, size uint64) string {
	if uint32(size) == 0 {
		return ""
	}
	b := i.bytes(function, ptr, size)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// bytes is a part of the guest's memory, borrowed as well.
func (i *instance) bytes(function string, ptr, size uint64) []byte {
	if i.mem != nil {
		if b, ok := i.mem.Read(uint32(ptr), uint32(size)); ok {
			return b
		}
	}
	i.misuse(function, "the pointer and length are outside its memory")
	return nil
}

// node is the place that a handle names; the zero Node for 0.
func (i *instance) node(function string, handle uint64) document.Node {
	if i.doc == nil {
		i.misuse(function, "there is an object in outgoing and incoming only")
	}
	h := uint64(uint32(handle))
	if h > document.ConfigRoot && h&generationMask != i.generation {
		i.misuse(function, "the handle is of an earlier call, or no handle")
	}
	n, ok := i.doc.Node(int(h&indexMask), i.floor)
	if !ok || h > document.ConfigRoot && n.ID() <= document.ConfigRoot {
		i.misuse(function, "no such handle")
	}
	return n
}

// handle is what the guest calls a node.
func (i *instance) handle(n document.Node) uint64 {
	id := uint64(n.ID())
	if id <= document.ConfigRoot {
		return id
	}
	return i.generation | id
}

// misuse ends the call: the guest broke the contract.
func (i *instance) misuse(function, problem string) {
	panic(&AccessError{Plugin: i.plugin.name, During: i.during, Function: function, Problem: problem})
}

// abort ends the call with an error of the document.
func (i *instance) abort(function string, err error) { panic(i.documentError(function, err)) }

func (i *instance) documentError(function string, err error) error {
	var e *document.Error
	if errors.As(err, &e) {
		switch e.Code {
		case document.TooManyNodes:
			return i.limitError(LimitHandles, i.plugin.limits.Handles)
		case document.TooManyBytes:
			return i.limitError(LimitOutput, i.plugin.limits.OutputBytes)
		case document.TooDeep:
			return i.limitError(LimitNesting, 0)
		case document.TooMuchWork:
			return errOutOfFuel
		}
	}
	return &AccessError{Plugin: i.plugin.name, During: i.during, Function: function, Problem: err.Error()}
}
