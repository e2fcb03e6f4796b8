// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import "github.com/refract-project/refract/host/document"

// abiVersion is the version of the ABI that this host implements. docs/abi.md describes it.
const abiVersion = 1

// absent is the length that functions return if there is no value: -1 as an i32.
const absent = 0xFFFFFFFF

// refractFunctions returns the functions of the import module "refract". Handles, pointers and lengths are i32.
func refractFunctions() map[string]hostFunction {
	return map[string]hostFunction{
		"kind":      fn(abiKind, aI32, i32, i32, i32),
		"len":       fn(abiLen, aI32, i32, i32, i32),
		"get":       fn(abiGet, aI32, i32, i32, i32),
		"field":     fn(abiField, aI32, i32, i32, i32),
		"elem":      fn(abiElem, aI32, i32, i32),
		"string":    fn(abiString, aI32, i32, i32, i32, i32, i32),
		"string_eq": fn(abiStringEq, aI32, i32, i32, i32, i32, i32),
		"int":       fn(abiInt, anI64, i32, i32, i32, i64),
		"float":     fn(abiFloat, anF64, i32, i32, i32, f64),
		"bool":      fn(abiBool, aI32, i32, i32, i32, i32),
		"keys":      fn(abiKeys, aI32, i32, i32, i32, i32, i32),
		"json":      fn(abiJSON, aI32, i32, i32, i32, i32, i32),

		"set_string":       fn(abiSetString, none, i32, i32, i32, i32, i32),
		"set_int":          fn(abiSetInt, none, i32, i32, i32, i64),
		"set_float":        fn(abiSetFloat, none, i32, i32, i32, f64),
		"set_bool":         fn(abiSetBool, none, i32, i32, i32, i32),
		"set_null":         fn(abiSetNull, none, i32, i32, i32),
		"set_map":          fn(abiSetMap, aI32, i32, i32, i32),
		"set_list":         fn(abiSetList, aI32, i32, i32, i32),
		"ensure_map":       fn(abiEnsureMap, aI32, i32, i32, i32),
		"set_json":         fn(abiSetJSON, none, i32, i32, i32, i32, i32),
		"copy":             fn(abiCopy, none, i32, i32, i32, i32),
		"remove":           fn(abiRemove, aI32, i32, i32, i32),
		"remove_elem":      fn(abiRemoveElem, none, i32, i32),
		"remove_keys":      fn(abiRemoveKeys, aI32, i32, i32, i32, i32, i32, i32),
		"remove_keys_glob": fn(abiRemoveKeysGlob, aI32, i32, i32, i32, i32, i32),

		"log":      fn(abiLog, none, i32, i32, i32),
		"warn":     fn(abiWarn, none, i32, i32),
		"skip":     fn(abiSkip, none, i32, i32),
		"fail":     fn(abiFail, none, i32, i32),
		"remap_ip": fn(abiRemapIP, aI32, i32, i32, i32, i32),
	}
}

// at returns the value at the handle, path pointer and path length on top of the stack.
func (i *instance) at(function string, stack []uint64) document.View {
	path := i.text(function, stack[1], stack[2])
	n := i.node(function, stack[0])
	v, err := n.At(path)
	// The document itself counts the work below other nodes.
	if n.ID() == 0 {
		i.charge(int64(len(path)))
	}
	i.done(function, err)
	return v
}

// target returns the node and the path of a read or write.
func (i *instance) target(function string, stack []uint64) (document.Node, string) {
	return i.node(function, stack[0]), i.text(function, stack[1], stack[2])
}

// wrong ends the call because the value is not of the kind that the function reads.
func (i *instance) wrong(function string, stack []uint64, got document.Kind, want string) {
	path := i.text(function, stack[1], stack[2])
	problem := "the value is of kind " + got.String() + ", not " + want
	if path != "" {
		problem = (&document.Error{Path: string([]byte(path)), Detail: problem}).Error()
	}
	i.misuse(function, problem)
}

// done finishes an operation on the document: it ends the call after an error, and charges the document's work.
func (i *instance) done(function string, err error) {
	if err != nil {
		i.abort(function, err)
	}
	if w := i.doc.TakeWork(); w > 0 {
		i.charge(w)
	}
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
