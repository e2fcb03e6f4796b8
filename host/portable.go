// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"github.com/tetratelabs/wazero/api"
	"sigs.k8s.io/json"

	"github.com/refract-project/refract/host/document"
)

// The portable tier runs modules of any Extism PDK. The object is serialized for them, so their cost grows with its
// size.

// invokePortable passes {"object", "context", "config"} as Extism input and accepts the object, a JSON Patch of it, or
// {"skip": reason} as output. No output leaves the object unchanged.
func (i *instance) invokePortable(hook api.Function) error {
	k := &i.kernel
	k.used = true
	k.input, i.owed = i.portableInput()
	i.grantForInput()
	// The host encodes the input, but the plugin chose the tier.
	if i.owed > i.fuelLeft() {
		return &OutOfFuelError{Plugin: i.plugin.name, During: i.during, Fuel: i.budget}
	}
	i.stack[0] = 0
	if err := hook.CallWithStack(i, i.stack[:]); err != nil {
		return i.classifyError(err)
	}
	if uint32(i.stack[0]) != 0 || i.failed || len(k.err) > 0 {
		return i.pluginError()
	}
	if len(k.output) == 0 || i.skipped {
		return nil
	}
	return i.takeOutput(k.output)
}

// A call may use more fuel and memory for each byte of its input, in addition to the limits: a module of this tier
// reads and writes the whole object, whatever size the API server accepts. For an object with many small values, a Go
// build that decodes and encodes all of it needs up to 14,000 units of fuel and 20 bytes of memory per byte of input, a
// TinyGo build 15,000 and 200. A module that reads some fields and returns a JSON Patch, such as
// examples/plugins/portable-team, needs 1,700 and 450 units, and the memory of the input.
const (
	portableFuelPerByte   = 20_000
	portableMemoryPerByte = 40
)

// portableOutputPerByte is the number of bytes that an answer may write for each byte of the input, in addition to
// Limits.OutputBytes. A value counts 8 bytes and its text (see document.Node.Assign), and has at least 2 bytes of JSON,
// including the comma or bracket. An answer that repeats the object therefore stays within the limit. A JSON Patch that
// copies values many times becomes at most about five times the object.
const portableOutputPerByte = 4

// grantForInput raises the fuel and memory of the current call. An instance that used the memory is not reused: see
// Chain.endCall.
func (i *instance) grantForInput() {
	size := int64(len(i.kernel.input))
	i.budget += portableFuelPerByte * size
	i.setFuel(i.budget)
	i.memory.max = min(i.ownMemory()+uint64(portableMemoryPerByte*size), maxPages<<16)
}

// ownMemory returns the memory limit without the share for the input, in bytes.
func (i *instance) ownMemory() uint64 { return uint64(i.plugin.limits.MemoryPages) << 16 }

func (i *instance) portableInput() (in []byte, work int64) {
	in = append(i.kernel.input[:0], `{"object":`...)
	for _, part := range []struct {
		root int
		then string
	}{{document.ObjectRoot, `,"context":`}, {document.ContextRoot, `,"config":`}, {document.ConfigRoot, `}`}} {
		n, _ := i.doc.Node(part.root, 0)
		more := int64(0)
		in, more = n.View().Encode(in)
		in, work = append(in, part.then...), work+more
	}
	return in, work
}

// portableDecodeWork is the fuel for decoding a byte of the output. It is less than decodeWork costs: the output is
// decoded once a call, and every object that an API server accepts must fit.
const portableDecodeWork = 16

func (i *instance) takeOutput(text []byte) error {
	if i.owed += portableDecodeWork * int64(len(text)); i.owed > i.fuelLeft() {
		return &OutOfFuelError{Plugin: i.plugin.name, During: i.during, Fuel: i.budget}
	}
	i.doc.RaiseByteLimit(portableOutputPerByte * len(i.kernel.input))
	if isPatch(text) {
		return i.takePatch(text)
	}
	var out map[string]any
	repeated, err := json.UnmarshalStrict(text, &out, json.DisallowDuplicateFields)
	if err == nil && len(repeated) > 0 {
		err = repeated[0]
	}
	if err != nil {
		return i.badOutput("decoding its output, " + i.printableCopy(err.Error()))
	}
	if answer, ok := out["skip"]; ok && len(out) == 1 {
		return i.takeSkip(answer)
	}
	if out["skip"] == true {
		return i.badOutput(`its output has other members besides "skip": true; the reason goes into skip itself, {"skip": "reason"}`)
	}
	if len(out) == 0 {
		return i.badOutput(`its output is neither an object, a JSON Patch nor {"skip": "reason"}`)
	}
	// Only differences become edits, so that the guard checks changes and not repeated fields.
	if err := i.doc.Root().Assign("", out); err != nil {
		return i.classifyError(i.documentError("output_set", err))
	}
	return nil
}

// takeSkip handles the answer {"skip": …} with a reason, or true for no reason. False leaves the object unchanged, so
// that {skip: isPrivate(object)} works.
func (i *instance) takeSkip(answer any) error {
	reason, isText := answer.(string)
	if answer == false {
		return nil
	}
	if answer != true && (!isText || reason == "") {
		return i.badOutput(`its output has a skip that is neither the reason, a string that is not empty, nor true or false`)
	}
	if !i.plugin.skips {
		return i.badOutput(undeclaredSkip)
	}
	i.skipped, i.reason = true, i.printableCopy(reason)
	return nil
}

func (i *instance) badOutput(problem string) error {
	return &AccessError{Plugin: i.plugin.name, During: i.during, Function: "output_set", Problem: problem}
}

// configText returns a configuration value as Extism plugins read it.
func configText(v any) (text []byte, work int64) {
	if s, ok := v.(string); ok {
		return []byte(s), int64(len(s)) / 8
	}
	return document.Of(v).Encode(nil)
}
