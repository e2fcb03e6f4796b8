// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLogStyle checks that log messages are constant and capitalized, and that errors have the key err.
func TestLogStyle(t *testing.T) {
	files, calls := token.NewFileSet(), 0
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		// librarylog.go is skipped, because it forwards messages of libraries.
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "librarylog.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if isLog, problem := logStyle(n); problem != "" {
				t.Errorf("%s: %s", files.Position(n.Pos()), problem)
			} else if isLog {
				calls++
			}
			return true
		})
		return nil
	})
	if err != nil || calls < 50 {
		t.Errorf("checked %d calls: %v", calls, err)
	}
}

func TestLogStyleFinds(t *testing.T) {
	for _, bad := range []string{`log.Info("lower case")`, `log.FromContext(ctx).Info("Not constant: " + s)`, `log.Log.V(1).Info(s)`, `c.Logger.Error("listing", "err", err)`,
		`log.Error(err, s)`, `x.log.Warn("A", "error", err)`, `logger.Info("A", "n", 1, "because", s)`, `slog.Warn("A", "reason", err.Error())`} {
		call, err := parser.ParseExpr(bad)
		if _, problem := logStyle(call); err != nil || problem == "" {
			t.Errorf("nothing is found in %s, %v", bad, err)
		}
	}
}

var (
	loggers  = regexp.MustCompile(`^(log|logger|slog|Log|Logger|FromContext|V|WithValues|With)\.(Info|Warn|Error|Debug)$`)
	sentence = regexp.MustCompile("^[\"`][A-Z]")
)

// logStyle reports whether a node is a call of a logger. If its message or keys violate the rules, it returns the
// problem.
func logStyle(n ast.Node) (isLog bool, problem string) {
	call, _ := n.(*ast.CallExpr)
	if call == nil || len(call.Args) == 0 {
		return false, ""
	}
	method, _ := call.Fun.(*ast.SelectorExpr)
	if method == nil || !loggers.MatchString(last(method.X)+"."+method.Sel.Name) {
		return false, ""
	}
	args := call.Args
	if method.Sel.Name == "Error" && len(args) > 1 && !strings.HasPrefix(last(args[0]), `"`) {
		args = args[1:] // the first argument of logr's Error is the error
	}
	if !sentence.MatchString(last(args[0])) {
		return true, "the message is not a constant that begins with a capital letter"
	}
	for i := 1; i < len(args)-1; i += 2 {
		if key := last(args[i]); key == `"error"` || key == `"because"` || key == `"reason"` && last(args[i+1]) == "Error" {
			return true, fmt.Sprintf("key %s: use err for errors", key)
		}
	}
	return true, ""
}

// last returns the last name in a chain of selectors and calls, such as V for log.FromContext(ctx).V(1). It returns a
// literal unchanged.
func last(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Value
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		return last(e.Fun)
	}
	return ""
}
