// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"log/slog"
	"slices"
)

// kernel implements the "kernel" of Extism: memory outside of the guest's own, through which guest and host exchange
// strings. Blocks are allocated one after the other. All blocks are freed when the call ends.
type kernel struct {
	used          bool
	input, output []byte
	err           []byte
	memory        []byte            // memory of the blocks; addresses start at 8, because 0 means no block
	blocks        []block           // allocated blocks, sorted by address
	vars          map[string][]byte // kept only for one call, because a plugin must not keep state between objects
}

type block struct{ at, size uint64 }

func (k *kernel) resetKernel() {
	*k = kernel{input: k.input[:0], memory: k.memory[:0], blocks: k.blocks[:0], output: k.output[:0], err: k.err[:0]}
	if cap(k.memory) > 1<<20 {
		k.memory = nil
	}
}

// blockAt returns the block that starts at the given address.
func (k *kernel) blockAt(at uint64) (block, bool) {
	n, ok := slices.BinarySearchFunc(k.blocks, at, func(b block, at uint64) int {
		switch {
		case b.at < at:
			return -1
		case b.at > at:
			return 1
		}
		return 0
	})
	if !ok {
		return block{}, false
	}
	return k.blocks[n], true
}

// extismFunctions returns the functions of the import module "extism:host/env", which modules that were built with an
// Extism PDK call. Pointers and lengths are i64.
func extismFunctions() map[string]hostFunction {
	return map[string]hostFunction{
		"alloc":            newHostFunction(extismAlloc, anI64, i64),
		"free":             newHostFunction(func(*Instance, []uint64) {}, none, i64),
		"length":           newHostFunction(extismLength, anI64, i64),
		"length_unsafe":    newHostFunction(extismLength, anI64, i64),
		"load_u8":          newHostFunction(extismLoadU8, aI32, i64),
		"load_u64":         newHostFunction(extismLoadU64, anI64, i64),
		"store_u8":         newHostFunction(extismStoreU8, none, i64, i32),
		"store_u64":        newHostFunction(extismStoreU64, none, i64, i64),
		"input_length":     newHostFunction(extismInputLength, anI64),
		"input_load_u8":    newHostFunction(extismInputLoadU8, aI32, i64),
		"input_load_u64":   newHostFunction(extismInputLoadU64, anI64, i64),
		"output_set":       newHostFunction(extismOutputSet, none, i64, i64),
		"error_set":        newHostFunction(extismErrorSet, none, i64),
		"config_get":       newHostFunction(extismConfigGet, anI64, i64),
		"var_get":          newHostFunction(extismVarGet, anI64, i64),
		"var_set":          newHostFunction(extismVarSet, none, i64, i64),
		"log_trace":        extismLog("log_trace", slog.LevelDebug),
		"log_debug":        extismLog("log_debug", slog.LevelDebug),
		"log_info":         extismLog("log_info", slog.LevelInfo),
		"log_warn":         extismLog("log_warn", slog.LevelWarn),
		"log_error":        extismLog("log_error", slog.LevelError),
		"get_log_level":    newHostFunction(extismLogLevel, aI32),
		"http_request":     newHostFunction(extismRefuseHTTP, anI64, i64, i64),
		"http_status_code": newHostFunction(func(_ *Instance, stack []uint64) { stack[0] = 0 }, aI32),
		"http_headers":     newHostFunction(func(_ *Instance, stack []uint64) { stack[0] = 0 }, anI64),
	}
}

// allocateBlock allocates a block. Blocks count against the memory limit of the instance.
func (i *Instance) allocateBlock(function string, size uint64) uint64 {
	k := &i.kernel
	k.used = true
	limit := uint64(i.module.Limits.MemoryPages) << 16
	if size > limit || uint64(len(k.memory))+size+16 > limit {
		panic(i.limitError(LimitMemory, i.module.Limits.MemoryPages))
	}
	i.chargeFuel(int64(size)/8 + 16)
	if len(k.memory) == 0 {
		k.memory = append(k.memory, make([]byte, 8)...)
	}
	at := uint64(len(k.memory))
	// The size of a block is rounded up to a multiple of 8 bytes, and is at least 8, so that every block has its own
	// address.
	k.memory = append(k.memory, make([]byte, max(size+7, 8)&^7)...)
	k.blocks = append(k.blocks, block{at, size})
	return at
}

// placeBytes copies bytes to a new block.
func (i *Instance) placeBytes(function string, b []byte) uint64 {
	at := i.allocateBlock(function, uint64(len(b)))
	copy(i.kernel.memory[at:], b)
	return at
}

// blockContent returns the bytes of a block. They share memory with the block.
func (i *Instance) blockContent(function string, at uint64) []byte {
	b, ok := i.kernel.blockAt(at)
	if !ok {
		i.abortMisuse(function, "no block of Extism memory starts there")
	}
	return i.kernel.memory[b.at : b.at+b.size]
}

// memoryWindow returns n bytes of the kernel's memory at an address, or of the input at an offset.
func (i *Instance) memoryWindow(function string, memory []byte, at, n uint64) []byte {
	if at > uint64(len(memory)) || uint64(len(memory))-at < n {
		i.abortMisuse(function, "the offset is outside")
	}
	return memory[at : at+n]
}

func extismAlloc(i *Instance, stack []uint64) { stack[0] = i.allocateBlock("alloc", stack[0]) }

func extismLength(i *Instance, stack []uint64) {
	b, _ := i.kernel.blockAt(stack[0])
	stack[0] = b.size
}

func extismLoadU8(i *Instance, stack []uint64) {
	stack[0] = uint64(i.memoryWindow("load_u8", i.kernel.memory, stack[0], 1)[0])
}

func extismLoadU64(i *Instance, stack []uint64) {
	stack[0] = binary.LittleEndian.Uint64(i.memoryWindow("load_u64", i.kernel.memory, stack[0], 8))
}

func extismStoreU8(i *Instance, stack []uint64) {
	i.memoryWindow("store_u8", i.kernel.memory, stack[0], 1)[0] = byte(stack[1])
}

func extismStoreU64(i *Instance, stack []uint64) {
	binary.LittleEndian.PutUint64(i.memoryWindow("store_u64", i.kernel.memory, stack[0], 8), stack[1])
}

func extismInputLength(i *Instance, stack []uint64) { stack[0] = uint64(len(i.kernel.input)) }

func extismInputLoadU8(i *Instance, stack []uint64) {
	stack[0] = uint64(i.memoryWindow("input_load_u8", i.kernel.input, stack[0], 1)[0])
}

func extismInputLoadU64(i *Instance, stack []uint64) {
	stack[0] = binary.LittleEndian.Uint64(i.memoryWindow("input_load_u64", i.kernel.input, stack[0], 8))
}

func extismOutputSet(i *Instance, stack []uint64) {
	out := i.memoryWindow("output_set", i.kernel.memory, stack[0], stack[1])
	i.kernel.used = true
	// The bytes count as output only when they become part of the object. Here, only an upper bound is checked.
	i.chargeFuel(int64(len(out)) / 8)
	// Decoding may need twenty times the memory of the text. Therefore the length of the text is limited to the
	// length of the input plus the limit of the output, not to a multiple of that limit.
	if most := i.module.Limits.OutputBytes + len(i.kernel.input); len(out) > most {
		panic(i.limitError(LimitOutput, most))
	}
	i.kernel.output = append(i.kernel.output[:0], out...)
}

// extismErrorSet sets the error of the call. Offset 0 means no error.
func extismErrorSet(i *Instance, stack []uint64) {
	i.kernel.used = true
	i.kernel.err = i.kernel.err[:0]
	if stack[0] == 0 {
		return
	}
	text := i.blockContent("error_set", stack[0])
	i.spendOutput("error_set", len(text))
	i.kernel.err = append(i.kernel.err, i.printableCopy(string(text))...)
}

// extismConfigGet returns strings unchanged, and other values as JSON.
func extismConfigGet(i *Instance, stack []uint64) {
	key := i.blockContent("config_get", stack[0])
	stack[0] = 0
	i.chargeFuel(int64(len(key)))
	if v, ok := i.module.Config[string(key)]; ok {
		text, work := configText(v)
		i.chargeFuel(work)
		stack[0] = i.placeBytes("config_get", text)
	}
}

func extismVarGet(i *Instance, stack []uint64) {
	key := i.blockContent("var_get", stack[0])
	stack[0] = 0
	if v, ok := i.kernel.vars[string(key)]; ok {
		stack[0] = i.placeBytes("var_get", v)
	}
}

func extismVarSet(i *Instance, stack []uint64) {
	key := string(i.blockContent("var_set", stack[0]))
	if stack[1] == 0 {
		delete(i.kernel.vars, key)
		return
	}
	value := slices.Clone(i.blockContent("var_set", stack[1]))
	i.spendOutput("var_set", len(key)+len(value)+16)
	if i.kernel.vars == nil {
		i.kernel.vars = map[string][]byte{}
	}
	i.kernel.vars[key] = value
}

func extismLog(name string, level slog.Level) hostFunction {
	return newHostFunction(func(i *Instance, stack []uint64) {
		i.logCharged(name, level, string(i.blockContent(name, stack[0])))
	}, none, i64)
}

// extismLogLevel always returns "info". The guest need not know the level of the logger, because the host drops lines
// whose level is disabled.
func extismLogLevel(_ *Instance, stack []uint64) {
	const info = 2
	stack[0] = info
}

func extismRefuseHTTP(i *Instance, _ []uint64) {
	i.abortMisuse("http_request", "plugins have no network")
}
