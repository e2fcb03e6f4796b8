// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/document"
)

// Instance is a running copy of a module. It has its own memory and serves one call at a time. The instance is also
// the context.Context of its calls, so that host functions find it without a lookup.
type Instance struct {
	module *Module
	mod    api.Module
	memory memory
	fuel   api.MutableGlobal // nil if the plugin is unmetered
	depth  api.Global
	hooks  [hooks]api.Function
	stack  [1]uint64

	// during and the fields up to reason belong to the current call. doc is nil unless a hook is running.
	during     string
	budget     int64 // fuel at the beginning of the call
	owed       int64 // fuel for work of the host that was not charged yet
	doc        *document.Document
	env        *Env
	floor      int    // number of nodes of the document that existed before the call
	generation uint64 // generation of the handles, which is in their upper bits
	skipped    bool
	failed     bool
	reason     string
	warnings   []string // at most maxWarnings
	warned     int      // number of warnings, including those that are left out

	encoded    []byte // last encoding by json or keys, for a second call with a larger buffer
	encodedFor document.View
	encodedAt  uint64
	keyScratch []string
	kernel     kernel
	random     uint64 // state of WASI's random_get
	slept      int64  // nanoseconds by which sleeping has advanced WASI's clock
	output     output
	globals    []api.MutableGlobal
	// startOutput is the number of bytes that were written outside of hooks.
	startOutput int
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

// As a context.Context, an instance is equivalent to Background, because no call waits.

// Deadline implements context.Context. There is no deadline.
func (*Instance) Deadline() (deadline time.Time, ok bool) { return }

// Done implements context.Context. It returns nil, because the context never ends.
func (*Instance) Done() <-chan struct{} { return nil }

// Err implements context.Context. It returns nil, because the context never ends.
func (*Instance) Err() error { return nil }

// Value implements context.Context. It returns nil, because the context has no values.
func (*Instance) Value(any) any { return nil }

// RunHook calls a hook with the document. After an error other than a PluginFailedError, the instance must be
// discarded.
func (i *Instance) RunHook(hook Hook, doc *document.Document, env *Env) error {
	limits := &i.module.Limits
	doc.Begin(i.module.Config, limits.Handles, limits.OutputBytes)
	// This limit is for a single operation. The remaining fuel is checked when the work is charged.
	doc.SetWorkLimit(limits.Fuel / hostPrice)
	i.beginCall(hook.String(), limits.Fuel)
	i.doc, i.env, i.floor = doc, env, doc.Nodes()
	if i.generation = (i.generation + generationStep) & generationMask; i.generation == 0 {
		i.generation = generationStep
	}
	err := i.invokeHook(i.hooks[hook])
	i.endLines()
	i.doc, i.env = nil, nil
	if i.encodedFor.Exists() {
		i.encodedFor = document.View{}
	}
	return err
}

// Skipped reports whether the last call of a hook has excluded the object from reflection, and why.
func (i *Instance) Skipped() (reason string, skipped bool) { return i.reason, i.skipped }

// MemorySize returns the size of the instance's memory in bytes.
func (i *Instance) MemorySize() int { return len(i.memory.bytes) }

// ReadMemory returns a borrowed part of the instance's memory, which is valid until the next call. It returns false if
// a part is outside the memory.
func (i *Instance) ReadMemory(ptr, size uint32) ([]byte, bool) {
	if uint64(ptr)+uint64(size) > uint64(len(i.memory.bytes)) {
		return nil, false
	}
	return i.memory.bytes[ptr : ptr+size], true
}

// Close frees the instance. The error of closing is of no use: it would be the exit code of a module that has not
// exited.
func (i *Instance) Close() { _ = i.mod.Close(context.Background()) }

func (i *Instance) invokeHook(hook api.Function) error {
	if i.module.Portable {
		return i.invokePortable(hook)
	}
	err := hook.CallWithStack(i, i.stack[:])
	if err == nil && uint32(i.stack[0]) == 0 && !i.failed {
		return nil
	}
	if err != nil {
		return i.classifyError(err)
	}
	return i.pluginError()
}

// pluginError returns the error that the plugin itself has reported.
func (i *Instance) pluginError() error {
	reason := i.reason
	if !i.failed && len(i.kernel.err) > 0 {
		reason = string(i.kernel.err)
	}
	if reason == "" {
		reason = "it gave no reason"
	}
	return &PluginFailedError{Plugin: i.module.Name, During: i.during, Reason: reason}
}

// beginCall resets the state of the last call, and sets the fuel for the next one.
func (i *Instance) beginCall(during string, budget int64) {
	i.during, i.budget = during, budget
	i.skipped, i.failed, i.reason = false, false, ""
	if i.warned > 0 {
		clear(i.warnings)
		i.warnings, i.warned = i.warnings[:0], 0
	}
	i.memory.refused = false
	i.output.panicky = ""
	i.owed = 0
	if i.kernel.used {
		i.kernel.resetKernel()
	}
	i.setFuel(budget)
}

func (i *Instance) setFuel(units int64) {
	if i.fuel != nil {
		i.fuel.Set(uint64(units))
	}
}

// fuelLeft returns the remaining fuel. It is negative after the fuel has run out. For an unmetered plugin, it is the
// budget.
func (i *Instance) fuelLeft() int64 {
	if i.fuel == nil {
		return i.budget
	}
	return int64(i.fuel.Get())
}

// FuelUsed returns the fuel that the last call has used, which is at most its budget.
func (i *Instance) FuelUsed() int64 { return min(i.budget-i.fuelLeft()+i.owed, i.budget) }

// chargeFuel charges fuel for work of the host, so that a plugin cannot let the host work without limit.
func (i *Instance) chargeFuel(units int64) {
	if i.owed += hostPrice * units; i.owed > maxOwed {
		i.settleFuel()
	}
}

// hostPrice is the fuel for a unit of the host's work. At a price of 1, the most expensive functions took eleven
// times as long as the guest's own code on a machine with slow memory and fast loops.
const hostPrice = 8

// maxOwed is the amount of work that may be left uncharged, because it takes only some microseconds.
const maxOwed = 4096

// settleFuel charges the work that was not charged yet.
func (i *Instance) settleFuel() {
	left := i.fuelLeft() - i.owed
	i.owed = 0
	i.setFuel(max(left, -1))
	if left < 0 {
		panic(errOutOfFuel)
	}
	if i.isLate() {
		panic(i.lateError())
	}
}

// isLate reports whether the timeout of the chain has passed.
func (i *Instance) isLate() bool { return i.env != nil && i.env.Clock.isLate() }

// lateError returns the error for a timeout. It names the slowest plugin of the chain, which may differ from the
// plugin of this instance.
func (i *Instance) lateError() error { return i.env.Clock.lateError(i.module.Name, i.during) }

// spendOutput counts output bytes. While a hook runs, the document counts the bytes. At other times, the instance
// counts them.
func (i *Instance) spendOutput(function string, n int) {
	i.chargeFuel(int64(n) / 8)
	if i.doc == nil {
		if i.startOutput += n; i.startOutput > i.module.Limits.OutputBytes {
			panic(i.limitError(LimitOutput, i.module.Limits.OutputBytes))
		}
		return
	}
	if err := i.doc.Spend(n); err != nil {
		i.abortCall(function, err)
	}
}

// guestString returns a string in the guest's memory. The string is borrowed, so it is valid only until the guest
// continues.
func (i *Instance) guestString(function string, ptr, size uint64) string {
	if uint32(size) == 0 {
		return ""
	}
	b := i.guestBytes(function, ptr, size)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// guestBytes returns a borrowed part of the guest's memory. The memory belongs to our allocator, so that no call of
// the runtime is necessary.
func (i *Instance) guestBytes(function string, ptr, size uint64) []byte {
	from := uint64(uint32(ptr))
	to := from + uint64(uint32(size))
	if to > uint64(len(i.memory.bytes)) {
		i.abortMisuse(function, "the pointer and length are outside its memory")
	}
	return i.memory.bytes[from:to:to]
}

// nodeOf returns the node of a handle, or the zero Node for handle 0.
func (i *Instance) nodeOf(function string, handle uint64) document.Node {
	if i.doc == nil {
		i.abortMisuse(function, "there is an object in outgoing and incoming only")
	}
	h := uint64(uint32(handle))
	if h > document.ConfigRoot && h&generationMask != i.generation {
		i.abortMisuse(function, "the handle is of an earlier call, or no handle")
	}
	n, ok := i.doc.Node(int(h&indexMask), i.floor)
	if !ok || h > document.ConfigRoot && n.ID() <= document.ConfigRoot {
		i.abortMisuse(function, "no such handle")
	}
	return n
}

// handleOf returns the handle of a node.
func (i *Instance) handleOf(n document.Node) uint64 {
	id := uint64(n.ID())
	if id <= document.ConfigRoot {
		return id
	}
	return i.generation | id
}

// abortMisuse ends the call because the guest has violated the rules of the ABI.
func (i *Instance) abortMisuse(function, problem string) {
	panic(&AccessError{Plugin: i.module.Name, During: i.during, Function: function, Problem: problem})
}

// abortCall ends the call with an error from the document.
func (i *Instance) abortCall(function string, err error) {
	// The work until the failure must be charged, too.
	i.owed += hostPrice * i.doc.TakeWork()
	panic(i.documentError(function, err))
}

func (i *Instance) documentError(function string, err error) error {
	var e *document.Error
	if errors.As(err, &e) {
		switch e.Code {
		case document.TooManyNodes:
			return i.limitError(LimitHandles, i.module.Limits.Handles)
		case document.TooManyBytes:
			return i.limitError(LimitOutput, i.module.Limits.OutputBytes)
		case document.TooDeep:
			return i.limitError(LimitNesting, 0)
		case document.TooMuchWork:
			return errOutOfFuel
		}
	}
	return &AccessError{Plugin: i.module.Name, During: i.during, Function: function, Problem: err.Error()}
}
