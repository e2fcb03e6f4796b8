// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package fuel builds limits into a WebAssembly module: for its computation, its call depth and its memory. The limits
// become instructions of the module, so they apply at the same place on every machine and engine: the same input stops
// at the same instruction, also after a recompilation.
//
// # How it counts
//
// [Instrument] appends a global to the module, the fuel, and charges it in advance. The entry of a function and the
// header of each loop pay for the longest path from there to the next charge: all branches except those to loops lead
// forward, so paths end, and no instruction runs unpaid. If a branch may skip long code, that code has a charge of its
// own. A charge that makes the fuel negative executes `unreachable`. The host sees an ordinary trap, finds the fuel
// negative ([Stopped]), and discards the instance.
//
// Fuel measures paths, not executed instructions: a shorter path costs as much as the longest. Real code pays for 1.0
// to 1.5 times the executed instructions if compiled by TinyGo, and for 1.4 to 4 times if compiled by Go, where each
// function is a loop around a switch. A charge for each block would be exact, but costs 10–60 % of the time.
//
// Instructions cost 1, except the ones with unbounded work: memory.fill, copy and init cost their length in units of 8
// bytes, the table instructions their length, memory.grow a page, and a host call 256.
//
// # Depth
//
// A second global counts the stack. wazero stops an infinite recursion, but only after it has grown the stack to 50–100
// MB by doubling and copying, and at a place that depends on the machine code. Calls that can close a cycle (direct
// ones inside a strongly connected component of the call graph, and all indirect ones) therefore take units before the
// call and return them after it. All other calls are free. A unit is a frame of up to 8 locals and 64 instructions: the
// default of 65,536 units keeps the stack below 32 MB in the worst case, around 4 MB in practice, and allows tens of
// thousands of nested calls of a small function.
//
// # Other refusals
//
// The pass is the first code to read untrusted bytes. It refuses counts that the file cannot hold, before the engine
// would allocate for them; functions that compile for minutes (see Limits.CompilerWork); memories, tables and call
// chains that are too large from the start; features that it cannot count; and any use of a global or local that exists
// only in the result, with which a guest would refill its own fuel. The maximum of memories and tables is lowered to
// the limit. Custom sections are dropped, except for the names of functions.
//
// # Measurements
//
// wazero 1.12's compiler, amd64, the workload of testdata compiled by TinyGo, fastest of many alternating runs
// (BenchmarkFuel), on a shared machine: hashing 2–8 %, sorting 19–23 %, maps 4–7 %, text 11–15 %, calls through
// interfaces 3–5 %, JSON 3–8 %, formatting 3–4 %, regular expressions 6–13 %. Without separate charges for long rests
// the same run had 2, 23, 7, 15, 3, 5, 1 and 8 %, a difference within the noise. The worst case is a function that only
// calls itself twice and adds: 25–34 %, including 5 points for the depth.
//
// The sequence is global.get, i64.const, i64.sub, global.set, global.get, i64.const 0, i64.lt_s, if, unreachable, end.
// Nothing shorter in machine code was found: the compiler keeps the value in a register between global.set and
// global.get, so a local for it changes nothing. The inverse comparison with the trap in the else branch, so that the
// usual path falls through, has the same cost. A single trap at the end of each function, as the target of all charges,
// doubles the cost: the compiler creates a block for each such branch. Without the comparison, with counting alone, the
// costs are 3, 0, 3, 1 and 3 %: the comparison and jump are most of the price. They are necessary, because a program
// need not pass any place but entries and headers.
package fuel
