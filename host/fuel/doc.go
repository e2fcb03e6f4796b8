// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package fuel builds limits into a WebAssembly module: how much it may compute, how deep it may call, how
// much memory it may take. The limits become instructions of the module, so they hold on every machine and
// engine in the same place: the same input stops at the same instruction, also after a recompilation.
//
// # How it counts
//
// [Instrument] appends a global to the module, the fuel, and pays from it in advance. The entry of a function
// and the header of each loop pay for the longest path that control can take from there to the next payment:
// all branches but those to loops lead forward, so paths end, and nothing runs unpaid. Where a branch may leave
// code out that is long, that code has a payment of its own. A payment that leaves less than nothing executes
// `unreachable`. The host sees an ordinary trap, finds the fuel negative ([Stopped]), and throws the instance away.
//
// Fuel measures paths rather than instructions retired: a shorter path than the longest costs as much. Of real code
// 1.0 to 1.5 times the instructions that run are paid as TinyGo compiles it, and 1.4 to 4 times as Go does, where
// each function is a loop around a switch. A payment for each block would be exact, and costs 10–60 % of the time.
//
// Instructions cost 1, except those whose work is not bounded: memory.fill, copy and init cost their length in units
// of 8 bytes, the table instructions their length, memory.grow a page, and a call of the host 256.
//
// # Depth
//
// A second global counts the stack. wazero does stop an infinite recursion, but only after it grew the stack
// to 50–100 MB by doubling and copying, and in a place that depends on the machine code. So calls that can
// close a cycle (direct ones inside a strongly connected component of the call graph, and all indirect
// ones) take units before the call and give them back after it. All other calls are free. A unit stands for a
// frame of up to 8 locals and 64 instructions: the default of 65,536 units keeps the stack below 32 MB in
// the worst case, around 4 MB in practice, and allows tens of thousands of nested calls of a small function.
//
// # What else it refuses
//
// The pass is the first to read the bytes of a stranger. It refuses counts that the file cannot hold, before
// the engine would allocate for them; functions that compile for minutes (see Limits.CompilerWork);
// memories, tables and call chains that are too large from the start; features that the counting does not
// know; and any mention of a global or local that only exists in the result, which is how a guest would refill
// its own fuel. The maximum of memories and tables is lowered to the limit. Custom sections are dropped but
// for the functions' names.
//
// # Measured
//
// wazero 1.12's compiler, amd64, the workload of testdata as TinyGo builds it, fastest of many runs by turns
// (BenchmarkFuel), on a shared machine: hashing 2–8 %, sorting 19–23 %, maps 4–7 %, text 11–15 %, calls through
// interfaces 3–5 %, JSON 3–8 %, formatting 3–4 %, regular expressions 6–13 %. Without charges of their own for long
// rests the same run had 2, 23, 7, 15, 3, 5, 1 and 8 %, which is the noise. The worst case is a function that only
// calls itself twice and adds: 25–34 %, of which 5 points are the depth.
//
// The sequence is global.get, i64.const, i64.sub, global.set, global.get, i64.const 0, i64.lt_s, if,
// unreachable, end. Nothing shorter in machine code was found: the compiler keeps the value in a register
// between global.set and global.get, so a local for it changes nothing. The inverse comparison with the trap
// in the else branch, so that the usual path falls through, measures the same. One trap at the end of each
// function, which all charges branch to, doubles the cost: the compiler makes a block for each such branch.
// Without the comparison, that is counting only, the costs are 3, 0, 3, 1 and 3 %: the comparison and jump are
// most of the price, and cannot be left out, since a program need not pass any place but entries and headers.
package fuel
