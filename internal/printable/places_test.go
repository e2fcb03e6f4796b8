// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package printable_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// throughOthers lists files where texts are not converted to lines, and the code that converts these texts later.
var throughOthers = map[string]string{
	"controllers/credentials/controller.go":        "Metrics.Recorder, which all controllers get, makes every note a line",
	"controllers/foreigncluster/status.go":         "Controller.set makes every message a line",
	"controllers/internal/report/report.go":        "Metrics.Recorder",
	"controllers/namespacemap/namespace.go":        "explain returns a line",
	"controllers/namespaceoffloading/status.go":    "reasonOf makes the message of the provider a line; everything else is names",
	"controllers/nodefailure/controller.go":        "Metrics.Recorder",
	"controllers/servingcertificate/controller.go": "the name of an object; for Events, Metrics.Recorder",
	"internal/admission/events.go":                 "Memory.WriteOnce calls eventrecorder.Shorten",
	"internal/clientcert/clientcert.go":            "constants and names, from internal/refractctl/peering and controllers/authentication",
	"vk/reflection/internal/report/report.go":      "Memory.WriteOnce calls eventrecorder.Shorten",
	"vk/resources/status.go":                       "printable.Message, but for the rules of MissingPermission, which are YAML of its own",
}

// TestWordsOfOthersAreLines finds all code that sets the message of a condition or the note of an Event. The text must
// be a literal, or be converted to a line by this package, unless the file is in throughOthers.
func TestWordsOfOthersAreLines(t *testing.T) {
	files, found, used := token.NewFileSet(), 0, map[string]bool{}
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || isForTests(name) {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, text := range writtenTexts(n) {
				found++
				switch _, known := throughOthers[name]; {
				case isLine(text):
				case known:
					used[name] = true
				default:
					t.Errorf("%s: the text may have line breaks or control characters: use printable.Message, or eventrecorder.Shorten for an Event", files.Position(text.Pos()))
				}
			}
			return true
		})
		return nil
	}))
	if found < 20 {
		t.Errorf("found only %d places", found)
	}
	for name := range throughOthers {
		if !used[name] {
			t.Errorf("%s writes only texts that are made lines there: remove it from the list", name)
		}
	}
}

// isForTests reports whether a file is used only by tests.
func isForTests(name string) bool {
	return slices.ContainsFunc([]string{"test/", "test/support/testenv/", "controllers/internal/controllertest/", "vk/reflection/reflectiontest/"},
		func(folder string) bool { return strings.HasPrefix(name, folder) })
}

// TestWordsOfOthersAreFound checks that the search in TestWordsOfOthersAreLines finds texts that are not lines.
func TestWordsOfOthersAreFound(t *testing.T) {
	for code, isBad := range map[string]bool{
		`metav1.Condition{Type: "A", Message: err.Error()}`:                     true,
		`corev1.NodeCondition{Message: printable.Text(err.Error())}`:            true,
		`corev1.NodeCondition{Message: printable.Message(err.Error())}`:         false,
		`metav1.Condition{Message: "constant"}`:                                 false,
		`x{Message: err.Error()}`:                                               false,
		`recorder.Event(object, "Warning", "Reason", err.Error())`:              true,
		`recorder.Event(object, "Warning", "Reason", eventrecorder.Shorten(s))`: false,
		`c.recorder.Eventf(pod, nil, "Warning", "Reason", "Action", "%v", err)`: true,
	} {
		expression, err := parser.ParseExpr(code)
		require.NoError(t, err)
		found := slices.ContainsFunc(writtenTexts(expression), func(text ast.Expr) bool { return !isLine(text) })
		if found != isBad {
			t.Errorf("%s: found %t, want %t", code, found, isBad)
		}
	}
}

// writtenTexts returns the texts that the code in a node writes to a condition or an Event.
func writtenTexts(n ast.Node) (texts []ast.Expr) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if !strings.HasSuffix(nameOf(n.Type), "Condition") {
			return nil
		}
		for _, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok && nameOf(pair.Key) == "Message" {
				texts = append(texts, pair.Value)
			}
		}
	case *ast.AssignStmt:
		for i, target := range n.Lhs {
			if selected, ok := target.(*ast.SelectorExpr); ok && selected.Sel.Name == "Message" && len(n.Lhs) == len(n.Rhs) {
				texts = append(texts, n.Rhs[i])
			}
		}
	case *ast.CallExpr:
		if name := nameOf(n.Fun); name == "Event" || name == "Eventf" {
			const fixed = 3 // the number of arguments before the text: object, type and reason
			if len(n.Args) > fixed {
				texts = append(texts, n.Args[len(n.Args)-1])
			}
		}
	}
	return texts
}

// isLine reports whether an expression is a literal or the call of a function that returns a line.
func isLine(text ast.Expr) bool {
	switch text := text.(type) {
	case *ast.BasicLit:
		return true
	case *ast.CallExpr:
		name := fmt.Sprintf("%s.%s", packageOf(text.Fun), nameOf(text.Fun))
		if name == "printable.Shorten" {
			return isLine(text.Args[0])
		}
		return slices.Contains([]string{"printable.Message", "printable.Line", "eventrecorder.Shorten"}, name)
	}
	return false
}

// nameOf returns the part of an expression after the last dot.
func nameOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// packageOf returns the part of an expression before the last dot.
func packageOf(expression ast.Expr) string {
	if selected, ok := expression.(*ast.SelectorExpr); ok {
		return nameOf(selected.X)
	}
	return ""
}
