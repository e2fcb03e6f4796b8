// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package wattest assembles the subset of the WebAssembly text format that the tests of the host use. Tests can
// therefore contain hostile and tiny modules as readable source instead of binaries.
//
// The package supports imports of functions; exports, including inline exports; memories, tables, globals, start,
// active data and element segments; functions with named parameters, locals and labels; flat and folded instructions.
// The type of each function must be written out. For any other construct, the assembler returns an error with the line.
package wattest

import "fmt"

// Assemble assembles a module. The source is a single (module …).
func Assemble(source string) (binary []byte, err error) {
	nodes, err := parse(source)
	if err != nil {
		return nil, err
	}
	if len(nodes) != 1 || nodes[0].head() != "module" {
		return nil, fmt.Errorf("line 1: want one (module …)")
	}
	a := &assembler{funcs: names{}, globals: names{}, tables: names{}}
	defer func() {
		if r := recover(); r != nil {
			problem, ok := r.(syntaxError)
			if !ok {
				panic(r)
			}
			err = problem
		}
	}()
	a.module(nodes[0].list[1:])
	return a.encode(), nil
}

type syntaxError string

func (e syntaxError) Error() string { return string(e) }

func fail(n node, format string, args ...any) {
	panic(syntaxError(fmt.Sprintf("line %d: %s", n.line, fmt.Sprintf(format, args...))))
}
