// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// productFolders are the folders that contain the product's code. All other folders contain tests and tools.
var productFolders = []string{"api", "cmd", "controllers", "gateway", "host", "internal", "sdk", "vk"}

// testPackages are packages in the productFolders that only tests import.
var testPackages = []string{"controllertest", "reflectiontest", "kindtest", "plugintest", "testdata"}

// duration is a duration constant, or a flag with its default.
type duration struct {
	// pkg is the folder of the package.
	pkg string
	// name is the name of the constant or of the flag, including the flag's dashes.
	name string
	// value is the value of the duration. It is the expression in the source if the expression depends on other
	// packages.
	value string
	// meaning is the comment of the constant, or the help of the flag.
	meaning string
	isFlag  bool
	pos     token.Position
}

// durations contains all durations in the sources.
type durations struct {
	named []duration
	// bare contains the positions of unnamed durations in functions.
	bare []token.Position
}

// units are the constants of package time.
var units = map[string]time.Duration{
	"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
	"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// readDurations reads the sources below root.
func readDurations(root string) (*durations, error) {
	found := &durations{}
	for _, folder := range productFolders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && slices.Contains(testPackages, entry.Name()):
				return filepath.SkipDir
			case entry.IsDir():
				return found.readPackage(root, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found.named, func(a, b duration) int {
		return strings.Compare(a.pkg+"\x00"+strings.ToLower(a.name), b.pkg+"\x00"+strings.ToLower(b.name))
	})
	return found, nil
}

// readPackage reads the Go files in a folder, except for tests.
func (d *durations) readPackage(root, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return err
	}
	r := &reader{fset: token.NewFileSet(), pkg: filepath.ToSlash(rel), root: root, constants: map[string]ast.Expr{}}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(r.fset, filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			return err
		}
		r.files = append(r.files, file)
	}
	for _, file := range r.files {
		ast.Inspect(file, r.collectConstants)
	}
	for _, file := range r.files {
		ast.Inspect(file, func(node ast.Node) bool { return r.visit(d, node) })
	}
	return nil
}

// reader reads the files of one package.
type reader struct {
	fset      *token.FileSet
	pkg, root string
	files     []*ast.File
	// constants contains the values of the package's constants, including local constants.
	constants map[string]ast.Expr
}

func (r *reader) collectConstants(node ast.Node) bool {
	decl, ok := node.(*ast.GenDecl)
	if !ok || decl.Tok != token.CONST {
		return true
	}
	for _, spec := range decl.Specs {
		spec := spec.(*ast.ValueSpec)
		for i, name := range spec.Names {
			if i < len(spec.Values) {
				r.constants[name.Name] = spec.Values[i]
			}
		}
	}
	return false
}

// visit records the named and unnamed durations in a node.
func (r *reader) visit(d *durations, node ast.Node) bool {
	switch node := node.(type) {
	case *ast.GenDecl:
		if node.Tok == token.CONST || node.Tok == token.VAR {
			r.addNamed(d, node)
			return false
		}
	case *ast.CallExpr:
		if r.addFlag(d, node) || isConversion(node) {
			return false
		}
	case *ast.BinaryExpr:
		// Expressions such as int(d / time.Second) and time.Duration(seconds) * time.Second are conversions, and not
		// durations.
		if node.Op == token.QUO && isUnit(node.Y) || node.Op == token.MUL && (isCall(node.X) && isUnit(node.Y) || isCall(node.Y) && isUnit(node.X)) {
			other := node.X
			if isUnit(other) {
				other = node.Y
			}
			ast.Inspect(other, func(inner ast.Node) bool { return r.visit(d, inner) })
			return false
		}
	case *ast.SelectorExpr:
		if isUnit(node) {
			d.bare = append(d.bare, r.position(node))
		}
	}
	return true
}

func (r *reader) position(node ast.Node) token.Position {
	at := r.fset.Position(node.Pos())
	if rel, err := filepath.Rel(r.root, at.Filename); err == nil {
		at.Filename = filepath.ToSlash(rel)
	}
	return at
}

// addNamed records the durations in a declaration. A constant or variable is recorded if its value contains a unit of
// time.
func (r *reader) addNamed(d *durations, decl *ast.GenDecl) {
	before := ""
	for _, spec := range decl.Specs {
		spec := spec.(*ast.ValueSpec)
		before = cmp.Or(spec.Doc.Text(), before)
		for i, name := range spec.Names {
			if i >= len(spec.Values) || !hasUnit(spec.Values[i]) {
				continue
			}
			if _, isFunc := spec.Values[i].(*ast.FuncLit); isFunc {
				ast.Inspect(spec.Values[i], func(inner ast.Node) bool { return r.visit(d, inner) })
				continue
			}
			comment := cmp.Or(spec.Doc.Text(), spec.Comment.Text())
			if strings.Contains(before, name.Name) { // a comment "a and b limit …" above a also describes b
				comment = cmp.Or(comment, before)
			}
			comment = cmp.Or(comment, decl.Doc.Text())
			d.named = append(d.named, duration{
				pkg: r.pkg, name: name.Name, value: r.value(spec.Values[i]), meaning: oneLine(comment), pos: r.position(name),
			})
		}
	}
}

// addFlag records the default of a flag. It returns false if the call does not define a flag.
func (r *reader) addFlag(d *durations, call *ast.CallExpr) bool {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || function.Sel.Name != "DurationVar" || len(call.Args) != 4 {
		return false
	}
	flag, help := text(call.Args[1]), text(call.Args[3])
	if strings.HasPrefix(r.pkg, "cmd/refractctl") {
		return true // the durations of refractctl are documented in the help of its flags
	}
	d.named = append(d.named, duration{pkg: r.pkg, name: "--" + flag, value: r.value(call.Args[2]), meaning: help, isFlag: true, pos: r.position(call)})
	return true
}

// value returns the duration of an expression in the format of flags, such as 10m. It returns the source of an
// expression that cannot be evaluated.
func (r *reader) value(expression ast.Expr) string {
	if value, ok := r.evaluate(expression); ok {
		return short(time.Duration(value))
	}
	file := r.fset.Position(expression.Pos()).Filename
	source, err := os.ReadFile(file)
	if err != nil {
		return "?"
	}
	return oneLine(string(source[r.fset.Position(expression.Pos()).Offset:r.fset.Position(expression.End()).Offset]))
}

// evaluate computes an expression of numbers, units and constants of the package. It returns false for other
// expressions.
func (r *reader) evaluate(expression ast.Expr) (int64, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		value, err := strconv.ParseInt(strings.ReplaceAll(e.Value, "_", ""), 0, 64)
		return value, err == nil
	case *ast.ParenExpr:
		return r.evaluate(e.X)
	case *ast.SelectorExpr:
		if isUnit(e) {
			return int64(units[e.Sel.Name]), true
		}
	case *ast.Ident:
		if value, ok := r.constants[e.Name]; ok {
			return r.evaluate(value)
		}
	case *ast.BinaryExpr:
		x, known := r.evaluate(e.X)
		y, alsoKnown := r.evaluate(e.Y)
		if !known || !alsoKnown {
			return 0, false
		}
		switch e.Op {
		case token.MUL:
			return x * y, true
		case token.ADD:
			return x + y, true
		case token.SUB:
			return x - y, true
		case token.QUO:
			return x / max(y, 1), true
		}
	}
	return 0, false
}

func isUnit(node ast.Expr) bool {
	selector, ok := node.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := selector.X.(*ast.Ident)
	return ok && pkg.Name == "time" && units[selector.Sel.Name] != 0
}

func isCall(node ast.Expr) bool {
	_, ok := node.(*ast.CallExpr)
	return ok
}

// isConversion reports whether a call rounds a time to show or store it. The argument of such a call is a precision,
// which needs no name.
func isConversion(call *ast.CallExpr) bool {
	function, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (function.Sel.Name == "Round" || function.Sel.Name == "Truncate") && len(call.Args) == 1 && hasUnit(call.Args[0])
}

func hasUnit(node ast.Node) bool {
	found := false
	ast.Inspect(node, func(inner ast.Node) bool {
		if expression, ok := inner.(ast.Expr); ok && isUnit(expression) {
			found = true
		}
		return !found
	})
	return found
}

// text returns the value of a string literal, or of a concatenation of string literals.
func text(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		value, _ := strconv.Unquote(e.Value)
		return value
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	}
	return "…"
}

func oneLine(comment string) string { return strings.Join(strings.Fields(comment), " ") }

// short formats a duration without units that are zero: 10m instead of 10m0s.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
