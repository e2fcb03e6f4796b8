// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"fmt"

	"github.com/tetratelabs/wazero/api"
	"sigs.k8s.io/json"

	"github.com/refract-project/refract/host/document"
)

// The portable tier runs modules that were built with any Extism PDK. The whole object is serialized for them, so the
// cost grows with the size of the object.

// invokePortable passes {"object", "context", "config"} as the input of an Extism plugin. The output may be the
// object, a JSON Patch of the object, or {"skip": reason}. An empty output leaves the object unchanged.
func (i *Instance) invokePortable(hook api.Function) error {
	k := &i.kernel
	k.used = true
	k.input, i.owed = i.portableInput()
	i.grantForInput()
	// The encoding of the input is charged to the plugin, although the host does it.
	if i.owed > i.fuelLeft() {
		return &OutOfFuelError{Plugin: i.module.Name, During: i.during, Fuel: i.budget}
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

// Fuel and memory that a call may use for each byte of its input, in addition to the limits. A module of this tier
// reads and writes the whole object, which may have any size that the API server accepts. For an object with many
// small values, a module that decodes and encodes the whole object needs up to 14,000 units of fuel and 20 bytes of
// memory for each byte of input if it was built by Go, and 15,000 units and 200 bytes if it was built by TinyGo. A
// module that reads some fields and returns a JSON Patch, such as examples/plugins/portable-team, needs 1,700 units
// (Go) or 450 units (TinyGo), and memory for the input.
const (
	portableFuelPerByte   = 20_000
	portableMemoryPerByte = 40
)

// portableOutputPerByte is the number of bytes that an answer may write for each byte of the input, in addition to
// Limits.OutputBytes. A value counts as 8 bytes plus its text (see document.Node.Assign), and has at least 2 bytes of
// JSON, including the comma or bracket. Therefore an answer that repeats the object is always within the limit. The
// result of a JSON Patch that copies values many times is limited to about five times the size of the object.
const portableOutputPerByte = 4

// grantForInput increases the fuel and memory of the current call. If the call has used this memory, the instance is
// not reused: see HasGrown.
func (i *Instance) grantForInput() {
	size := int64(len(i.kernel.input))
	i.budget += portableFuelPerByte * size
	i.setFuel(i.budget)
	i.memory.max = min(i.ownMemory()+uint64(portableMemoryPerByte*size), MaxPages<<16)
}

// HasGrown reports whether the memory is larger than the limit allows, because the input of a call was large.
func (i *Instance) HasGrown() bool { return uint64(len(i.memory.bytes)) > i.ownMemory() }

// ownMemory returns the memory limit in bytes, without the part that is granted for the input.
func (i *Instance) ownMemory() uint64 { return uint64(i.module.Limits.MemoryPages) << 16 }

func (i *Instance) portableInput() (in []byte, work int64) {
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

// portableDecodeWork is the fuel for each byte of decoded output. It is lower than the price in decodeWork, because
// the output is decoded only once in a call, and the fuel must suffice for every object that an API server accepts.
const portableDecodeWork = 16

func (i *Instance) takeOutput(text []byte) error {
	if i.owed += portableDecodeWork * int64(len(text)); i.owed > i.fuelLeft() {
		return &OutOfFuelError{Plugin: i.module.Name, During: i.during, Fuel: i.budget}
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
	// Only differences become edits, so that the guard does not check repeated fields.
	if err := i.doc.Root().Assign("", out); err != nil {
		return i.classifyError(i.documentError("output_set", err))
	}
	return nil
}

// takeSkip handles the answer {"skip": …}. The value is a reason, or true if there is no reason. With the value
// false, the object stays unchanged, so that a plugin can return {skip: isPrivate(object)}.
func (i *Instance) takeSkip(answer any) error {
	reason, isText := answer.(string)
	if answer == false {
		return nil
	}
	if answer != true && (!isText || reason == "") {
		return i.badOutput(`its output has a skip that is neither the reason, a string that is not empty, nor true or false`)
	}
	if !i.module.MaySkip {
		return i.badOutput(undeclaredSkip)
	}
	i.skipped, i.reason = true, i.printableCopy(reason)
	return nil
}

func (i *Instance) badOutput(problem string) error {
	return &AccessError{Plugin: i.module.Name, During: i.during, Function: "output_set", Problem: problem}
}

// configText returns a configuration value in the form that Extism plugins expect.
func configText(v any) (text []byte, work int64) {
	if s, ok := v.(string); ok {
		return []byte(s), int64(len(s)) / 8
	}
	return document.Of(v).Encode(nil)
}

// isPatch reports whether an output of the portable tier is a JSON Patch, which is a list and not an object.
func isPatch(output []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(output, " \t\r\n"), []byte("["))
}

// takePatch applies the operations of a JSON Patch to the object. After an error, the caller must drop all edits.
func (i *Instance) takePatch(text []byte) error {
	var operations []any
	repeated, err := json.UnmarshalStrict(text, &operations, json.DisallowDuplicateFields)
	if len(repeated) > 0 {
		err = repeated[0]
	}
	if err != nil {
		return i.badOutput("decoding its JSON Patch, " + i.printableCopy(err.Error()))
	}
	for n, operation := range operations {
		err := i.doc.Patch(operation)
		if i.owed += hostPrice * i.doc.TakeWork(); i.owed > i.fuelLeft() {
			return &OutOfFuelError{Plugin: i.module.Name, During: i.during, Fuel: i.budget}
		}
		if i.isLate() {
			return i.lateError()
		}
		if err != nil {
			return i.classifyError(i.documentError("output_set", fmt.Errorf("operation %d of its JSON Patch: %w", n, err)))
		}
	}
	return nil
}
