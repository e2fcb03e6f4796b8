// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	sdkFunction = regexp.MustCompile(`//go:wasmimport refract (\w+)\nfunc \w+\(([^)]*)\) ?(\w*)\n`)
	docRow      = regexp.MustCompile("(?m)^\\| `[a-z_]+\\(.*$")
	docFunction = regexp.MustCompile("`([a-z_]+)\\(([^)`]*)\\)[^`]*`")
)

// TestABIAgrees checks that the host, the SDK and docs/abi.md have the same functions with the same types.
func TestABIAgrees(t *testing.T) {
	names := map[byte]string{i32: "i32", i64: "i64", f64: "f64"}
	offered := map[string][2]string{}
	for name, f := range refractFunctions() {
		var params, results []string
		for _, p := range f.params {
			params = append(params, names[p])
		}
		for _, r := range f.results {
			results = append(results, names[r])
		}
		offered[name] = [2]string{strings.Join(params, " "), strings.Join(results, " ")}
	}

	wasm := map[string]string{"uint32": "i32", "unsafe.Pointer": "i32", "int64": "i64", "float64": "f64", "": ""}
	imported := map[string]bool{}
	for _, match := range sdkFunction.FindAllStringSubmatch(read(t, "../../../sdk/imports.go"), -1) {
		var params []string
		for _, p := range strings.Split(match[2], ", ") {
			_, kind, _ := strings.Cut(p, " ")
			params = append(params, wasm[kind])
		}
		imported[match[1]] = true
		if got := [2]string{strings.Join(params, " "), wasm[match[3]]}; got != offered[match[1]] {
			t.Errorf("the SDK imports %s as %q, the host offers %q", match[1], got, offered[match[1]])
		}
	}

	told := map[string]bool{}
	for _, row := range docRow.FindAllString(read(t, "../../../docs/abi.md"), -1) {
		for _, match := range docFunction.FindAllStringSubmatch(row, -1) {
			f, ok := refractFunctions()[match[1]]
			if !ok {
				// This row of the table does not describe a function.
				continue
			}
			told[match[1]] = true
			var params []string
			for _, p := range strings.Split(match[2], ",") {
				switch {
				case strings.HasSuffix(p, " i64"):
					params = append(params, "i64")
				case strings.HasSuffix(p, " f64"):
					params = append(params, "f64")
				default:
					params = append(params, "i32")
				}
			}
			if got := strings.Join(params, " "); got != offered[match[1]][0] {
				t.Errorf("docs/abi.md says that %s takes %q, it takes %q (%d)", match[1], got, offered[match[1]][0], len(f.params))
			}
		}
	}
	for name := range offered {
		if !imported[name] {
			t.Errorf("the SDK does not import %s", name)
		}
		if !told[name] {
			t.Errorf("docs/abi.md has no row for %s", name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
