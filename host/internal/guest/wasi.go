// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"strings"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// This file implements WASI preview 1, as far as the runtimes of languages need it. Modules have no files, arguments
// or environment variables. The clock advances only when the module sleeps, and sleeping takes no time. Random
// numbers have a fixed seed, so that the result of a call depends only on its input. Output is logged.

const (
	wasiSuccess = 0
	wasiBadFile = 8
	wasiInvalid = 28
	wasiNoSys   = 52
)

// wasiTime is the initial time of every clock: 2022-01-01T00:00:00Z, in nanoseconds. It is not zero, because some
// runtimes treat zero as an error.
const wasiTime = 1_640_995_200_000_000_000

// wasiSignatures contains the parameters of all functions of preview 1 except proc_exit. i means i32, and l means i64.
// Each function returns an errno.
var wasiSignatures = map[string]string{
	"args_get": "ii", "args_sizes_get": "ii", "environ_get": "ii", "environ_sizes_get": "ii",
	"clock_res_get": "ii", "clock_time_get": "ili", "random_get": "ii", "sched_yield": "", "poll_oneoff": "iiii",
	"fd_write": "iiii", "fd_read": "iiii", "fd_close": "i", "fd_fdstat_get": "ii", "fd_fdstat_set_flags": "ii",
	"fd_prestat_get": "ii", "fd_prestat_dir_name": "iii", "fd_seek": "ilii", "fd_tell": "ii", "fd_sync": "i",
	"fd_advise": "illi", "fd_allocate": "ill", "fd_datasync": "i", "fd_fdstat_set_rights": "ill",
	"fd_filestat_get": "ii", "fd_filestat_set_size": "il", "fd_filestat_set_times": "illi",
	"fd_pread": "iiili", "fd_pwrite": "iiili", "fd_readdir": "iiili", "fd_renumber": "ii",
	"path_create_directory": "iii", "path_filestat_get": "iiiii", "path_filestat_set_times": "iiiilli",
	"path_link": "iiiiiii", "path_open": "iiiiillii", "path_readlink": "iiiiii", "path_remove_directory": "iii",
	"path_rename": "iiiiii", "path_symlink": "iiiii", "path_unlink_file": "iii",
	"sock_accept": "iii", "sock_recv": "iiiiii", "sock_send": "iiiii", "sock_shutdown": "ii", "proc_raise": "i",
}

func wasiFunctions() map[string]hostFunction {
	all := map[string]hostFunction{
		"proc_exit": newHostFunction(func(_ *Instance, stack []uint64) { panic(sys.NewExitError(uint32(stack[0]))) }, none, i32),
	}
	for name, letters := range wasiSignatures {
		params := []api.ValueType{}
		for _, l := range letters {
			if l == 'l' {
				params = append(params, i64)
			} else {
				params = append(params, i32)
			}
		}
		call := wasiCalls()[name]
		if call == nil {
			call = wasiMissing
			if strings.HasPrefix(name, "fd_") {
				call = wasiNoFile
			}
		}
		all[name] = hostFunction{params: params, results: aI32, call: func(i *Instance, stack []uint64) {
			result := call(i, stack)
			if len(stack) > 0 {
				stack[0] = result
			}
		}}
	}
	return all
}

type wasiCall func(i *Instance, stack []uint64) (errno uint64)

func wasiMissing(*Instance, []uint64) uint64 { return wasiNoSys }

func wasiNoFile(*Instance, []uint64) uint64 { return wasiBadFile }

func wasiCalls() map[string]wasiCall {
	return map[string]wasiCall{
		"args_get":          func(*Instance, []uint64) uint64 { return wasiSuccess },
		"environ_get":       func(*Instance, []uint64) uint64 { return wasiSuccess },
		"args_sizes_get":    wasiNothing,
		"environ_sizes_get": wasiNothing,
		"sched_yield":       func(*Instance, []uint64) uint64 { return wasiSuccess },
		"clock_res_get":     func(i *Instance, s []uint64) uint64 { return i.wasiStore(s[1], 1) },
		"clock_time_get":    func(i *Instance, s []uint64) uint64 { return i.wasiStore(s[2], uint64(wasiTime+i.slept)) },
		"random_get":        wasiRandom,
		"fd_write":          wasiWrite,
		"poll_oneoff":       wasiPoll,
		"fd_fdstat_get":     wasiStat,
	}
}

// wasiNothing implements the functions that return the sizes of the arguments and of the environment. Both sizes are
// zero.
func wasiNothing(i *Instance, stack []uint64) uint64 {
	for _, ptr := range stack[:2] {
		clear(i.guestBytes("args_sizes_get", ptr, 4))
	}
	return wasiSuccess
}

func (i *Instance) wasiStore(ptr, v uint64) uint64 {
	binary.LittleEndian.PutUint64(i.guestBytes("clock_time_get", ptr, 8), v)
	return wasiSuccess
}

// wasiRandom fills a buffer from a pseudorandom sequence with a fixed seed (splitmix64). Each instance starts at the
// beginning of the sequence.
func wasiRandom(i *Instance, stack []uint64) uint64 {
	buffer := i.guestBytes("random_get", stack[0], stack[1])
	i.chargeFuel(int64(len(buffer)) / 8)
	for len(buffer) > 0 {
		i.random += 0x9e3779b97f4a7c15
		z := i.random
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], z^z>>31)
		buffer = buffer[copy(buffer, word[:]):]
	}
	return wasiSuccess
}

// wasiWrite logs output line by line: standard output at level info, standard error at level error, and the text of a
// panic as a warning.
func wasiWrite(i *Instance, stack []uint64) uint64 {
	file := uint32(stack[0])
	if file != 1 && file != 2 {
		return wasiBadFile
	}
	const vectorBytes = 8
	vectors := i.guestBytes("fd_write", stack[1], uint64(uint32(stack[2]))*vectorBytes)
	if uint64(len(vectors)) != uint64(uint32(stack[2]))*vectorBytes {
		// The size of the list of vectors does not fit into 32 bits.
		return wasiInvalid
	}
	i.chargeFuel(int64(len(vectors)))
	written := 0
	for ; len(vectors) > 0; vectors = vectors[vectorBytes:] {
		ptr, size := binary.LittleEndian.Uint32(vectors), binary.LittleEndian.Uint32(vectors[4:])
		part := i.guestBytes("fd_write", uint64(ptr), uint64(size))
		i.spendOutput("fd_write", len(part))
		i.writeOutput(int(file-1), part)
		written += len(part)
	}
	i.spendOutput("fd_write", lineBytes)
	binary.LittleEndian.PutUint32(i.guestBytes("fd_write", stack[3], 4), uint32(written))
	return wasiSuccess
}

// Sizes of the structures in poll_oneoff, and the maximum of the clock.
const (
	subscriptionBytes = 48
	eventBytes        = 32
	maxSleep          = 1 << 60 // maximum of all sleeps together, in nanoseconds
)

// wasiPoll returns at once. It advances the clock to the requested time. For files it reports an error.
func wasiPoll(i *Instance, stack []uint64) uint64 {
	n := uint64(uint32(stack[2]))
	if n == 0 || n > 1<<16 {
		return wasiInvalid
	}
	subscriptions := i.guestBytes("poll_oneoff", stack[0], n*subscriptionBytes)
	i.chargeFuel(int64(n) * 16)
	answers := make([]byte, 0, n*eventBytes)
	for ; len(subscriptions) > 0; subscriptions = subscriptions[subscriptionBytes:] {
		event := make([]byte, eventBytes)
		copy(event, subscriptions[:8]) // user data of the subscription
		event[10] = subscriptions[8]   // type of the event
		if event[10] == 0 {
			i.sleepFor(binary.LittleEndian.Uint64(subscriptions[24:]), subscriptions[40]&1 != 0)
		} else {
			event[8] = wasiBadFile
		}
		answers = append(answers, event...)
	}
	copy(i.guestBytes("poll_oneoff", stack[1], n*eventBytes), answers)
	binary.LittleEndian.PutUint32(i.guestBytes("poll_oneoff", stack[3], 4), uint32(n))
	return wasiSuccess
}

// sleepFor advances the clock by a duration, or to a time if isTime is true.
func (i *Instance) sleepFor(nanoseconds uint64, isTime bool) {
	switch {
	case !isTime:
		i.slept = min(i.slept+int64(min(nanoseconds, maxSleep)), maxSleep)
	case nanoseconds > uint64(wasiTime+i.slept):
		i.slept = int64(min(nanoseconds-wasiTime, maxSleep))
	}
}

// wasiStat reports the standard streams as character devices. No other files are open.
func wasiStat(i *Instance, stack []uint64) uint64 {
	if uint32(stack[0]) > 2 {
		return wasiBadFile
	}
	stat := i.guestBytes("fd_fdstat_get", stack[1], 24)
	clear(stat)
	stat[0] = 2
	return wasiSuccess
}
