// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

package sdk

import "unsafe"

// Functions of the host, which are described in docs/abi.md. A text is passed as its address and size.

//go:wasmimport refract kind
func hostKind(h uint32, path unsafe.Pointer, pathSize uint32) uint32

//go:wasmimport refract len
func hostLen(h uint32, path unsafe.Pointer, pathSize uint32) uint32

//go:wasmimport refract get
func hostGet(h uint32, path unsafe.Pointer, pathSize uint32) uint32

//go:wasmimport refract field
func hostField(h uint32, key unsafe.Pointer, keySize uint32) uint32

//go:wasmimport refract elem
func hostElem(h uint32, index uint32) uint32

//go:wasmimport refract string
func hostString(h uint32, path unsafe.Pointer, pathSize uint32, buffer unsafe.Pointer, capacity uint32) uint32

//go:wasmimport refract string_eq
func hostStringEq(h uint32, path unsafe.Pointer, pathSize uint32, s unsafe.Pointer, sSize uint32) uint32

//go:wasmimport refract int
func hostInt(h uint32, path unsafe.Pointer, pathSize uint32, fallback int64) int64

//go:wasmimport refract float
func hostFloat(h uint32, path unsafe.Pointer, pathSize uint32, fallback float64) float64

//go:wasmimport refract bool
func hostBool(h uint32, path unsafe.Pointer, pathSize uint32, fallback uint32) uint32

//go:wasmimport refract keys
func hostKeys(h uint32, path unsafe.Pointer, pathSize uint32, buffer unsafe.Pointer, capacity uint32) uint32

//go:wasmimport refract json
func hostJSON(h uint32, path unsafe.Pointer, pathSize uint32, buffer unsafe.Pointer, capacity uint32) uint32

//go:wasmimport refract set_string
func hostSetString(h uint32, path unsafe.Pointer, pathSize uint32, s unsafe.Pointer, sSize uint32)

//go:wasmimport refract set_int
func hostSetInt(h uint32, path unsafe.Pointer, pathSize uint32, value int64)

//go:wasmimport refract set_float
func hostSetFloat(h uint32, path unsafe.Pointer, pathSize uint32, value float64)

//go:wasmimport refract set_bool
func hostSetBool(h uint32, path unsafe.Pointer, pathSize uint32, value uint32)

//go:wasmimport refract set_null
func hostSetNull(h uint32, path unsafe.Pointer, pathSize uint32)

//go:wasmimport refract set_map
func hostSetMap(h uint32, path unsafe.Pointer, pathSize uint32) uint32

//go:wasmimport refract set_list
func hostSetList(h uint32, path unsafe.Pointer, pathSize uint32) uint32

//go:wasmimport refract ensure_map
func hostEnsureMap(h uint32, path unsafe.Pointer, pathSize uint32) uint32

//go:wasmimport refract set_json
func hostSetJSON(h uint32, path unsafe.Pointer, pathSize uint32, json unsafe.Pointer, jsonSize uint32)

//go:wasmimport refract copy
func hostCopy(h uint32, path unsafe.Pointer, pathSize uint32, source uint32)

//go:wasmimport refract remove
func hostRemove(h uint32, paths unsafe.Pointer, pathsSize uint32) uint32

//go:wasmimport refract remove_elem
func hostRemoveElem(h uint32, index uint32)

//go:wasmimport refract remove_keys
func hostRemoveKeys(h uint32, path unsafe.Pointer, pathSize uint32, from uint32, list unsafe.Pointer, listSize uint32) uint32

//go:wasmimport refract remove_keys_glob
func hostRemoveKeysGlob(h uint32, path unsafe.Pointer, pathSize uint32, globs unsafe.Pointer, globsSize uint32) uint32

//go:wasmimport refract log
func hostLog(level uint32, text unsafe.Pointer, textSize uint32)

//go:wasmimport refract warn
func hostWarn(text unsafe.Pointer, textSize uint32)

//go:wasmimport refract skip
func hostSkip(reason unsafe.Pointer, reasonSize uint32)

//go:wasmimport refract fail
func hostFail(reason unsafe.Pointer, reasonSize uint32)

//go:wasmimport refract remap_ip
func hostRemapIP(ip unsafe.Pointer, ipSize uint32, buffer unsafe.Pointer, capacity uint32) uint32

// absent is the size that functions return for a missing value.
const absent = 0xFFFFFFFF

func address(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(s)) }

func size(s string) uint32 { return uint32(len(s)) }
