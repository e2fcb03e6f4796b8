// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// testsOfClusters returns the tests of the package in a folder that use a package variable of a type Cluster,
// directly or through other functions and methods. Methods are distinguished only by their names, so the result may
// include a test that does not use a cluster.
func testsOfClusters(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	d := declarations{uses: map[string]map[string]bool{}}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("looking for the tests that need a control plane, %w", err)
		}
		for _, decl := range file.Decls {
			d.add(decl)
		}
	}
	reached := d.users(d.clusters)
	var tests []string
	for name := range reached {
		if d.uses[name] != nil && name != "TestMain" && strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	return tests, nil
}

// declarations contains the declarations in a package's tests.
type declarations struct {
	// uses maps each function, method and variable to the names that its declaration contains.
	uses map[string]map[string]bool
	// clusters are the names of the variables that hold a cluster.
	clusters []string
}

func (d *declarations) add(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		d.addUses(decl.Name.Name, decl)
	case *ast.GenDecl:
		if decl.Tok != token.VAR {
			return
		}
		for _, spec := range decl.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				d.addUses(name.Name, spec)
				if d.uses[name.Name]["Cluster"] {
					d.clusters = append(d.clusters, name.Name)
				}
			}
		}
	}
}

// addUses adds the names that a node contains to the uses of name. It may be called several times for one name,
// because methods of several types may have the same name.
func (d *declarations) addUses(name string, node ast.Node) {
	if d.uses[name] == nil {
		d.uses[name] = map[string]bool{}
	}
	ast.Inspect(node, func(inner ast.Node) bool {
		if ident, ok := inner.(*ast.Ident); ok {
			d.uses[name][ident.Name] = true
		}
		return true
	})
}

// users returns the given names, and the names of all declarations that use them directly or indirectly.
func (d *declarations) users(names []string) map[string]bool {
	reached := map[string]bool{}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if reached[name] {
			continue
		}
		reached[name] = true
		for user, used := range d.uses {
			if used[name] {
				names = append(names, user)
			}
		}
	}
	return reached
}
