// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import "github.com/refract-project/refract/host/document"

// ABIVersion is the version of the plugin ABI that this host implements. The ABI is described in docs/abi.md.
const ABIVersion = 1

// absent is the result of functions that return the length of a string if the string is missing: -1 as an i32.
const absent = 0xFFFFFFFF

// refractFunctions returns the functions of the import module "refract". Handles, pointers and lengths are i32.
func refractFunctions() map[string]hostFunction {
	return map[string]hostFunction{
		"kind":      newHostFunction(abiKind, aI32, i32, i32, i32),
		"len":       newHostFunction(abiLen, aI32, i32, i32, i32),
		"get":       newHostFunction(abiGet, aI32, i32, i32, i32),
		"field":     newHostFunction(abiField, aI32, i32, i32, i32),
		"elem":      newHostFunction(abiElem, aI32, i32, i32),
		"string":    newHostFunction(abiString, aI32, i32, i32, i32, i32, i32),
		"string_eq": newHostFunction(abiStringEq, aI32, i32, i32, i32, i32, i32),
		"int":       newHostFunction(abiInt, anI64, i32, i32, i32, i64),
		"float":     newHostFunction(abiFloat, anF64, i32, i32, i32, f64),
		"bool":      newHostFunction(abiBool, aI32, i32, i32, i32, i32),
		"keys":      newHostFunction(abiKeys, aI32, i32, i32, i32, i32, i32),
		"json":      newHostFunction(abiJSON, aI32, i32, i32, i32, i32, i32),

		"set_string":       newHostFunction(abiSetString, none, i32, i32, i32, i32, i32),
		"set_int":          newHostFunction(abiSetInt, none, i32, i32, i32, i64),
		"set_float":        newHostFunction(abiSetFloat, none, i32, i32, i32, f64),
		"set_bool":         newHostFunction(abiSetBool, none, i32, i32, i32, i32),
		"set_null":         newHostFunction(abiSetNull, none, i32, i32, i32),
		"set_map":          newHostFunction(abiSetMap, aI32, i32, i32, i32),
		"set_list":         newHostFunction(abiSetList, aI32, i32, i32, i32),
		"ensure_map":       newHostFunction(abiEnsureMap, aI32, i32, i32, i32),
		"set_json":         newHostFunction(abiSetJSON, none, i32, i32, i32, i32, i32),
		"copy":             newHostFunction(abiCopy, none, i32, i32, i32, i32),
		"remove":           newHostFunction(abiRemove, aI32, i32, i32, i32),
		"remove_elem":      newHostFunction(abiRemoveElem, none, i32, i32),
		"remove_keys":      newHostFunction(abiRemoveKeys, aI32, i32, i32, i32, i32, i32, i32),
		"remove_keys_glob": newHostFunction(abiRemoveKeysGlob, aI32, i32, i32, i32, i32, i32),

		"log":      newHostFunction(abiLog, none, i32, i32, i32),
		"warn":     newHostFunction(abiWarn, none, i32, i32),
		"skip":     newHostFunction(abiSkip, none, i32, i32),
		"fail":     newHostFunction(abiFail, none, i32, i32),
		"remap_ip": newHostFunction(abiRemapIP, aI32, i32, i32, i32, i32),
	}
}

// valueAt returns the value at a path below a handle. The handle, the path pointer and the path length are on top of
// the stack.
func (i *Instance) valueAt(function string, stack []uint64) document.View {
	path := i.guestString(function, stack[1], stack[2])
	n := i.nodeOf(function, stack[0])
	v, err := n.At(path)
	// A path below an absent node is charged here. For all other paths, the document counts the work itself.
	if n.ID() == 0 {
		i.chargeFuel(int64(len(path)))
	}
	i.finishOperation(function, err)
	return v
}

// nodeAndPath returns the node and the path for a read or write.
func (i *Instance) nodeAndPath(function string, stack []uint64) (document.Node, string) {
	return i.nodeOf(function, stack[0]), i.guestString(function, stack[1], stack[2])
}

// abortWrongKind ends the call because the kind of the value differs from the kind that the function reads.
func (i *Instance) abortWrongKind(function string, stack []uint64, got document.Kind, want string) {
	path := i.guestString(function, stack[1], stack[2])
	problem := "the value is of kind " + got.String() + ", not " + want
	if path != "" {
		problem = (&document.Error{Path: string([]byte(path)), Detail: problem}).Error()
	}
	i.abortMisuse(function, problem)
}

// finishOperation charges the document's work after an operation, and ends the call if the operation has returned an
// error.
func (i *Instance) finishOperation(function string, err error) {
	if err != nil {
		i.abortCall(function, err)
	}
	if w := i.doc.TakeWork(); w > 0 {
		i.chargeFuel(w)
	}
}

func boolFlag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
