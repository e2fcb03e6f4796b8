// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package fuel inserts limits into a WebAssembly module: for its computation, its call depth and its memory. The
// limits become instructions of the module. Thus, with the same input, a module stops at the same instruction on
// every machine, in every engine, and after every compilation.
//
// # How it counts
//
// [Instrument] adds a global to the module, the fuel, and inserts code that charges fuel in advance. The entry of a
// function and the header of each loop charge for the longest path to the next charge. Such paths always end, because
// only branches to loops lead backward, so no instruction runs without a charge. If a branch may skip long code, that
// code has a charge of its own. A charge that makes the fuel negative executes `unreachable`. The host sees an
// ordinary trap, finds the fuel negative ([Stopped]), and discards the instance.
//
// Fuel measures paths, not executed instructions: a shorter path costs as much as the longest. Code that was compiled
// by TinyGo is charged 1.0 to 1.5 times the executed instructions, and code that was compiled by Go 1.4 to 4 times,
// because Go makes each function a loop around a switch. A charge for each block would be exact, but would take 10–60
// % of the time.
//
// Every instruction costs 1, except for instructions whose work is not bounded: memory.fill, copy and init cost their
// length in units of 8 bytes, table instructions their length, and memory.grow as much as a page. A host call costs
// 256.
//
// # Depth
//
// A second global counts the stack. wazero stops an infinite recursion only after it has grown the stack to 50–100 MB
// by doubling and copying, and at an instruction that depends on the machine code. Therefore calls that can close a
// cycle (direct calls inside a strongly connected component of the call graph, and all indirect calls) take units
// before the call and return them after it. All other calls are free. A unit is a frame of up to 8 locals and 64
// instructions: the default of 65,536 units keeps the stack below 32 MB in the worst case, around 4 MB in practice,
// and allows tens of thousands of nested calls of a small function.
//
// # Other refusals
//
// This package is the first code that reads the untrusted bytes. It rejects counts that are too large for the file,
// before the engine allocates memory for them; functions that take minutes to compile (see Limits.CompilerWork);
// memories, tables and call chains that are too large; features for which it cannot charge; and every use of a global
// or local that exists only in the result, because a guest could refill its own fuel. The maximum size of memories
// and tables is lowered to the limit. Custom sections are removed, except for the names of functions.
//
// # Measurements
//
// wazero 1.12's compiler, amd64, the workload of testdata compiled by TinyGo, fastest of many alternating runs
// (BenchmarkFuel), on a shared machine: hashing 2–8 %, sorting 19–23 %, maps 4–7 %, text 11–15 %, calls through
// interfaces 3–5 %, JSON 3–8 %, formatting 3–4 %, regular expressions 6–13 %. Without separate charges for long code
// that may be skipped, the same run had 2, 23, 7, 15, 3, 5, 1 and 8 %, a difference within the noise. The worst case
// is a function that only calls itself twice and adds the results: 25–34 %, including 5 points for the depth.
//
// A charge consists of global.get, i64.const, i64.sub, global.set, global.get, i64.const 0, i64.lt_s, if,
// unreachable, end. No sequence with shorter machine code was found. A local for the value has no effect, because the
// compiler keeps the value in a register between global.set and global.get. The inverse comparison, with the trap in
// the else branch so that the usual path falls through, has the same cost. A single trap at the end of each function,
// as the target of all charges, doubles the cost, because the compiler creates a block for each such branch. Counting
// without the comparison costs 3, 0, 3, 1 and 3 %, so most of the cost is the comparison and the jump. They are
// necessary in every charge, because a program may run through entries and loop headers only.
package fuel
