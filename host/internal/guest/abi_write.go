// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"math"

	"sigs.k8s.io/json"
)

func abiSetString(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("set_string", stack)
	i.finishOperation("set_string", n.SetString(path, i.guestString("set_string", stack[3], stack[4])))
}

func abiSetInt(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("set_int", stack)
	i.finishOperation("set_int", n.SetInt(path, int64(stack[3])))
}

func abiSetFloat(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("set_float", stack)
	i.finishOperation("set_float", n.SetFloat(path, math.Float64frombits(stack[3])))
}

func abiSetBool(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("set_bool", stack)
	i.finishOperation("set_bool", n.SetBool(path, uint32(stack[3]) != 0))
}

func abiSetNull(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("set_null", stack)
	i.finishOperation("set_null", n.SetNull(path))
}

func abiSetMap(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("set_map", stack)
	made, err := n.SetMap(path)
	i.finishOperation("set_map", err)
	stack[0] = i.handleOf(made)
}

func abiSetList(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("set_list", stack)
	made, err := n.SetList(path)
	i.finishOperation("set_list", err)
	stack[0] = i.handleOf(made)
}

func abiEnsureMap(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("ensure_map", stack)
	made, err := n.EnsureMap(path)
	i.finishOperation("ensure_map", err)
	stack[0] = i.handleOf(made)
}

func abiSetJSON(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("set_json", stack)
	v := i.decodeJSON("set_json", i.guestBytes("set_json", stack[3], stack[4]))
	i.finishOperation("set_json", n.Assign(path, v))
}

// decodeWork is the work that is charged for each byte of decoded JSON. Short values are the worst case, because each
// value is allocated.
const decodeWork = 5

// decodeJSON decodes JSON like Kubernetes: whole numbers become int64.
func (i *Instance) decodeJSON(function string, text []byte) any {
	if len(text) > i.module.Limits.OutputBytes {
		panic(i.limitError(LimitOutput, i.module.Limits.OutputBytes))
	}
	i.chargeFuel(decodeWork * int64(len(text)))
	var v any
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &v); err != nil {
		i.abortMisuse(function, "decoding the JSON, "+err.Error())
	}
	return v
}

func abiCopy(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("copy", stack)
	i.finishOperation("copy", n.Copy(path, i.nodeOf("copy", stack[3]).View()))
}

func abiRemove(i *Instance, stack []uint64) {
	n, paths := i.nodeAndPath("remove", stack)
	// A path below an absent node is charged here. For all other paths, the document counts the work itself.
	if n.ID() == 0 {
		i.chargeFuel(2 * int64(len(paths)))
	}
	count, err := n.Remove(paths)
	i.finishOperation("remove", err)
	stack[0] = uint64(count)
}

func abiRemoveElem(i *Instance, stack []uint64) {
	n := i.nodeOf("remove_elem", stack[0])
	i.finishOperation("remove_elem", n.RemoveElem(int(uint32(stack[1]))))
}

// systemPrefix is the prefix of the labels and annotations that record the owner of a copy. Globs do not match them. If
// they did, a plugin that strips "*" would remove them, and the guard would reject its result for every object.
const systemPrefix = "offloading.liqo.io/"

func abiRemoveKeys(i *Instance, stack []uint64) {
	n, paths := i.nodeAndPath("remove_keys", stack)
	from, lists := i.nodeAndPath("remove_keys", stack[3:])
	count, err := n.RemoveKeysListed(paths, from, lists, systemPrefix)
	i.finishOperation("remove_keys", err)
	stack[0] = uint64(count)
}

func abiRemoveKeysGlob(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("remove_keys_glob", stack)
	count, err := n.RemoveKeysGlob(path, i.guestString("remove_keys_glob", stack[3], stack[4]), systemPrefix)
	i.finishOperation("remove_keys_glob", err)
	stack[0] = uint64(count)
}
