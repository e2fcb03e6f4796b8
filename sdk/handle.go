// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

package sdk

import (
	"encoding/binary"
	"unsafe"
)

// handle is the number that the host has assigned to a value; 0 means that the value is absent. The host is not called
// to read an absent value.
type handle uint32

const (
	objectRoot  handle = 1
	contextRoot handle = 2
	configRoot  handle = 3
)

func (h handle) isZero() bool { return h == 0 }

func (h handle) kind(path string) Kind {
	if h == 0 {
		return KindAbsent
	}
	return Kind(hostKind(uint32(h), address(path), size(path)))
}

func (h handle) length(path string) int {
	if h == 0 {
		return 0
	}
	return int(hostLen(uint32(h), address(path), size(path)))
}

func (h handle) get(path string) handle {
	if h == 0 {
		return 0
	}
	return handle(hostGet(uint32(h), address(path), size(path)))
}

func (h handle) field(key string) handle {
	if h == 0 {
		return 0
	}
	return handle(hostField(uint32(h), address(key), size(key)))
}

func (h handle) elem(i int) handle {
	if h == 0 {
		return 0
	}
	return handle(hostElem(uint32(h), uint32(i)))
}

func (h handle) str(path string) (string, bool) {
	if h == 0 {
		return "", false
	}
	free := scratch.free(64)
	for {
		n := hostString(uint32(h), address(path), size(path), unsafe.Pointer(unsafe.SliceData(free)), uint32(len(free)))
		if n == absent {
			return "", false
		}
		if int(n) <= len(free) {
			return scratch.take(free, int(n)), true
		}
		free = scratch.free(int(n))
	}
}

func (h handle) strEq(path, s string) bool {
	if h == 0 {
		return false
	}
	return hostStringEq(uint32(h), address(path), size(path), address(s), size(s)) != 0
}

func (h handle) integer(path string, fallback int64) int64 {
	if h == 0 {
		return fallback
	}
	return hostInt(uint32(h), address(path), size(path), fallback)
}

func (h handle) float(path string, fallback float64) float64 {
	if h == 0 {
		return fallback
	}
	return hostFloat(uint32(h), address(path), size(path), fallback)
}

func (h handle) boolean(path string, fallback bool) bool {
	if h == 0 {
		return fallback
	}
	return hostBool(uint32(h), address(path), size(path), flag(fallback)) != 0
}

func (h handle) keys(path string) []string {
	if h == 0 {
		return nil
	}
	free := scratch.free(256)
	n := hostKeys(uint32(h), address(path), size(path), unsafe.Pointer(unsafe.SliceData(free)), uint32(len(free)))
	if int(n) > len(free) {
		free = scratch.free(int(n))
		n = hostKeys(uint32(h), address(path), size(path), unsafe.Pointer(unsafe.SliceData(free)), uint32(len(free)))
	}
	return splitKeys(scratch.take(free, int(n)))
}

// splitKeys splits the list of keys that the host returns. Each key is preceded by its length. The string headers are
// in the same buffer as the bytes, and are valid as long as the bytes.
func splitKeys(text string) []string {
	first := len(scratchKeys)
	for len(text) >= 4 {
		n := int(binary.LittleEndian.Uint32(unsafe.Slice(unsafe.StringData(text), 4)))
		scratchKeys = append(scratchKeys, text[4:4+n])
		text = text[4+n:]
	}
	last := len(scratchKeys)
	return scratchKeys[first:last:last]
}

func (h handle) json(path string) []byte {
	if h == 0 {
		return nil
	}
	free := scratch.free(1024)
	n := hostJSON(uint32(h), address(path), size(path), unsafe.Pointer(unsafe.SliceData(free)), uint32(len(free)))
	if int(n) > len(free) {
		free = scratch.free(int(n))
		n = hostJSON(uint32(h), address(path), size(path), unsafe.Pointer(unsafe.SliceData(free)), uint32(len(free)))
	}
	if n == 0 {
		return nil
	}
	scratch.used += int(n)
	return free[:n:n]
}

func (h handle) setString(path, s string) {
	hostSetString(uint32(h), address(path), size(path), address(s), size(s))
}

func (h handle) setInt(path string, v int64) {
	hostSetInt(uint32(h), address(path), size(path), v)
}

func (h handle) setFloat(path string, v float64) {
	hostSetFloat(uint32(h), address(path), size(path), v)
}

func (h handle) setBool(path string, v bool) {
	hostSetBool(uint32(h), address(path), size(path), flag(v))
}

func (h handle) setNull(path string) { hostSetNull(uint32(h), address(path), size(path)) }

func (h handle) setMap(path string) handle {
	return handle(hostSetMap(uint32(h), address(path), size(path)))
}

func (h handle) setList(path string) handle {
	return handle(hostSetList(uint32(h), address(path), size(path)))
}

func (h handle) ensureMap(path string) handle {
	return handle(hostEnsureMap(uint32(h), address(path), size(path)))
}

func (h handle) setJSON(path string, json []byte) {
	hostSetJSON(uint32(h), address(path), size(path), unsafe.Pointer(unsafe.SliceData(json)), uint32(len(json)))
}

func (h handle) copy(path string, source handle) {
	hostCopy(uint32(h), address(path), size(path), uint32(source))
}

func (h handle) remove(paths string) int {
	if h == 0 {
		return 0
	}
	return int(hostRemove(uint32(h), address(paths), size(paths)))
}

func (h handle) removeElem(i int) { hostRemoveElem(uint32(h), uint32(i)) }

// removeKeys removes the keys that match the globs from maps. path contains the paths of the maps, one per line. list
// contains the paths of the lists with their globs, in the same order.
func (h handle) removeKeys(path string, from handle, list string) int {
	if h == 0 || from == 0 {
		return 0
	}
	return int(hostRemoveKeys(uint32(h), address(path), size(path), uint32(from), address(list), size(list)))
}

func (h handle) removeGlob(path, globs string) int {
	if h == 0 {
		return 0
	}
	return int(hostRemoveKeysGlob(uint32(h), address(path), size(path), address(globs), size(globs)))
}

func (h handle) log(level Level, text string) { hostLog(uint32(level), address(text), size(text)) }

func (h handle) warn(text string) { hostWarn(address(text), size(text)) }

func (h handle) remapIP(ip string) (string, bool) {
	free := scratch.free(64) // 64 bytes are sufficient, because the longest IPv6 address has 45 characters
	n := hostRemapIP(address(ip), size(ip), unsafe.Pointer(unsafe.SliceData(free)), uint32(len(free)))
	if n == absent || int(n) > len(free) {
		return "", false
	}
	return scratch.take(free, int(n)), true
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
