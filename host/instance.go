// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/document"
)

// instance is a running copy of a module. It has its own memory and serves one call at a time. The instance is also
// the context.Context of its calls, so that host functions find it without a lookup.
type instance struct {
	plugin *Plugin
	// busy is 1 while a call, or the pool under its lock, owns the instance. Only the hot instance needs it.
	busy   atomic.Uint32
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

	encoded    []byte // last encoding by json or keys, for a second call with a larger buffer
	encodedFor document.View
	encodedAt  uint64
	keyScratch []string
	kernel     kernel
	random     uint64 // state of WASI's random_get
	slept      int64  // nanoseconds by which sleeping has advanced WASI's clock
	output     output
	domain     string // domain of the last call; see Env.Domain
	ran        bool   // code of the module has run since the last reset
	inherits   bool   // the instance has state from an earlier call
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
func (*instance) Deadline() (deadline time.Time, ok bool) { return }

// Done implements context.Context. It returns nil, because the context never ends.
func (*instance) Done() <-chan struct{} { return nil }

// Err implements context.Context. It returns nil, because the context never ends.
func (*instance) Err() error { return nil }

// Value implements context.Context. It returns nil, because the context has no values.
func (*instance) Value(any) any { return nil }

// runHook calls a hook with the document. After an error other than a PluginFailedError, the instance must be
// discarded.
func (i *instance) runHook(hook Hook, doc *document.Document, env *Env, call *Call) error {
	limits := &i.plugin.limits
	doc.Begin(i.plugin.config, limits.Handles, limits.OutputBytes)
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
	if env.Measure {
		call.Fuel, call.Memory = i.fuelUsed(), len(i.memory.bytes)
	}
	return err
}

func (i *instance) invokeHook(hook api.Function) error {
	if i.plugin.portable {
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
func (i *instance) pluginError() error {
	reason := i.reason
	if !i.failed && len(i.kernel.err) > 0 {
		reason = string(i.kernel.err)
	}
	if reason == "" {
		reason = "it gave no reason"
	}
	return &PluginFailedError{Plugin: i.plugin.name, During: i.during, Reason: reason}
}

// beginCall resets the state of the last call, and sets the fuel for the next one.
func (i *instance) beginCall(during string, budget int64) {
	i.during, i.budget = during, budget
	i.skipped, i.failed, i.reason = false, false, ""
	i.memory.refused = false
	i.output.panicky = ""
	i.owed = 0
	if i.kernel.used {
		i.kernel.resetKernel()
	}
	i.setFuel(budget)
}

func (i *instance) setFuel(units int64) {
	if i.fuel != nil {
		i.fuel.Set(uint64(units))
	}
}

// fuelLeft returns the remaining fuel. It is negative after the fuel has run out. For an unmetered plugin, it is the
// budget.
func (i *instance) fuelLeft() int64 {
	if i.fuel == nil {
		return i.budget
	}
	return int64(i.fuel.Get())
}

// fuelUsed returns the fuel that the call has used, which is at most the budget.
func (i *instance) fuelUsed() int64 { return min(i.budget-i.fuelLeft()+i.owed, i.budget) }

// chargeFuel charges fuel for work of the host, so that a plugin cannot let the host work without limit.
func (i *instance) chargeFuel(units int64) {
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
func (i *instance) settleFuel() {
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
func (i *instance) isLate() bool { return i.env != nil && i.env.readClock() > i.env.ends }

// lateError returns the error for a timeout. It names the slowest plugin of the chain, which may differ from the
// plugin of this instance.
func (i *instance) lateError() error { return i.env.lateError(i.plugin, i.during, i.env.readClock()) }

// spendOutput counts output bytes. While a hook runs, the document counts the bytes. At other times, the instance
// counts them.
func (i *instance) spendOutput(function string, n int) {
	i.chargeFuel(int64(n) / 8)
	if i.doc == nil {
		if i.startOutput += n; i.startOutput > i.plugin.limits.OutputBytes {
			panic(i.limitError(LimitOutput, i.plugin.limits.OutputBytes))
		}
		return
	}
	if err := i.doc.Spend(n); err != nil {
		i.abortCall(function, err)
	}
}

// guestString returns a string in the guest's memory. The string is borrowed, so it is valid only until the guest
// continues.
func (i *instance) guestString(function string, ptr, size uint64) string {
	if uint32(size) == 0 {
		return ""
	}
	b := i.guestBytes(function, ptr, size)
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// guestBytes returns a borrowed part of the guest's memory. The memory belongs to our allocator, so that no call of
// the runtime is necessary.
func (i *instance) guestBytes(function string, ptr, size uint64) []byte {
	from := uint64(uint32(ptr))
	to := from + uint64(uint32(size))
	if to > uint64(len(i.memory.bytes)) {
		i.abortMisuse(function, "the pointer and length are outside its memory")
	}
	return i.memory.bytes[from:to:to]
}

// nodeOf returns the node of a handle, or the zero Node for handle 0.
func (i *instance) nodeOf(function string, handle uint64) document.Node {
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
func (i *instance) handleOf(n document.Node) uint64 {
	id := uint64(n.ID())
	if id <= document.ConfigRoot {
		return id
	}
	return i.generation | id
}

// abortMisuse ends the call because the guest has violated the rules of the ABI.
func (i *instance) abortMisuse(function, problem string) {
	panic(&AccessError{Plugin: i.plugin.name, During: i.during, Function: function, Problem: problem})
}

// abortCall ends the call with an error from the document.
func (i *instance) abortCall(function string, err error) {
	// The work until the failure must be charged, too.
	i.owed += hostPrice * i.doc.TakeWork()
	panic(i.documentError(function, err))
}

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
