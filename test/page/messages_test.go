// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// row matches a table row whose first cell is formatted as code.
var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// TestMessagesAreOfThePrograms checks that the sources of the programs contain each message in the table of
// docs/joining.md.
func TestMessagesAreOfThePrograms(t *testing.T) {
	text, err := os.ReadFile("../../docs/joining.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n| message | remedy |\n")
	require.True(t, found, "the page has no table of messages")
	table, _, _ = strings.Cut(table, "\n\n")
	quoted := row.FindAllStringSubmatch(table, -1)
	require.Len(t, quoted, strings.Count(strings.TrimSpace(table), "\n"), "messages of the table")
	known := literals(t, "../../internal", "../../cmd", "../../controllers")
	for _, message := range quoted {
		if !slices.ContainsFunc(known, func(format string) bool { return says(format, message[1]) }) {
			t.Errorf("docs/joining.md quotes %q: no string in the sources is that message", message[1])
		}
	}
}

func TestSays(t *testing.T) {
	for message, want := range map[string]bool{
		"was not signed within 30s": true, "request rome was not": true, "was not signed in time": false, "not signed within 30s, or": false, "30s": false,
	} {
		assert.Equal(t, want, says("request %q was not signed within %s: sign it", message), message)
	}
}

// verb matches a formatting verb of package fmt, such as %q.
var verb = regexp.MustCompile(`%[+#]?[a-zA-Z]`)

// says reports whether a format string can produce a message. At least two words of the message must be literal text in
// the format. A verb stands for one word or a part of a word.
func says(format, message string) bool {
	words, wanted := strings.Fields(format), strings.Fields(message)
	for at := range len(words) - len(wanted) + 1 {
		literal := 0
		matches := func(word, want string) bool {
			bare := func(s string) string { return strings.Trim(s, `:;,.()"`) }
			if !verb.MatchString(word) {
				literal++
				return bare(word) == bare(want)
			}
			parts := verb.Split(bare(word), -1)
			for i := range parts {
				parts[i] = regexp.QuoteMeta(parts[i])
			}
			return regexp.MustCompile("^" + strings.Join(parts, ".+") + "$").MatchString(bare(want))
		}
		if slices.EqualFunc(words[at:at+len(wanted)], wanted, matches) && literal >= 2 {
			return true
		}
	}
	return false
}

// literals returns the string literals in the sources below the folders, without tests. Concatenated literals are
// returned as one literal.
func literals(t *testing.T, folders ...string) (found []string) {
	t.Helper()
	var value func(ast.Expr) (string, bool)
	value = func(expression ast.Expr) (string, bool) {
		switch e := expression.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(e.Value)
			return text, err == nil && e.Kind == token.STRING
		case *ast.BinaryExpr:
			left, ok := value(e.X)
			right, too := value(e.Y)
			return left + right, ok && too && e.Op == token.ADD
		}
		return "", false
	}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				expression, ok := node.(ast.Expr)
				if !ok {
					return true
				}
				text, ok := value(expression)
				if ok {
					found = append(found, text)
				}
				return !ok
			})
			return nil
		})
		require.NoError(t, err)
	}
	return found
}
