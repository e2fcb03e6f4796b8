// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/refract-project/refract/host"
)

const (
	outFile      = "out.yaml"
	skipFile     = "skip.txt"
	errorFile    = "error.txt"
	warningsFile = "warnings.txt"
)

// golden returns the contents of the golden files for an outcome, by file name.
func golden(out Outcome) map[string]string {
	files := map[string]string{}
	switch {
	case out.Err != nil:
		files[errorFile] = out.failure() + "\n"
	case out.Object == nil:
		files[skipFile] = out.SkipReason + "\n"
	default:
		files[outFile] = encode(out.Object)
	}
	if len(out.Warnings) > 0 {
		files[warningsFile] = joinLines(out.Warnings)
	}
	return files
}

// checkWorks returns an error if all cases end with a fault, such as a trap. Otherwise expected results could be
// written for a module that never works. A rejection of an object by the plugin is not a fault.
func (m *Module) checkWorks(t testing.TB, cases map[string]Case) error {
	var first error
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		out, err := m.try(t, cases[name].clone())
		if err == nil {
			err = out.Err
		}
		var refused *host.PluginFailedError
		if err == nil || errors.As(err, &refused) {
			return nil
		}
		if first == nil {
			first = fmt.Errorf("case %s, %w", name, err)
		}
	}
	return fmt.Errorf("the plugin works in none of %d cases, so no expected result is written: %w", len(cases), first)
}

// compareGolden compares an outcome with the golden files of its case, or updates the files. A fault of the plugin,
// which Check reports, is never written to the files.
func compareGolden(t testing.TB, dir string, out Outcome) {
	t.Helper()
	if *update && !expected(out.Err) {
		return
	}
	files := golden(out)
	for _, name := range []string{outFile, skipFile, errorFile, warningsFile} {
		path := filepath.Join(dir, name)
		got, have := files[name]
		if *update {
			write(t, path, got, have)
		} else if problem := compareFile(path, got, have); problem != "" {
			t.Errorf("%s", problem)
		}
	}
}

// compareFile compares a golden file with got, and returns the difference. If have is false, the file must not exist.
func compareFile(path, got string, have bool) string {
	text, err := os.ReadFile(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err.Error()
	case err != nil && have:
		return path + " is not there (go test -update writes it), but this is the result:\n" + got
	case err == nil && !have:
		return path + " is expected, but the result is another:\n" + string(text)
	case have && !matches(filepath.Base(path), string(text), got):
		return path + " (go test -update overwrites it):\n" + unified(string(text), got)
	}
	return ""
}

func matches(name, want, got string) bool {
	if name == errorFile {
		return strings.Contains(got, strings.TrimSpace(want))
	}
	return want == got
}

func write(t testing.TB, path, text string, have bool) {
	t.Helper()
	var err error
	if have {
		err = os.WriteFile(path, []byte(text), 0o644)
	} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		t.Fatal(err)
	}
}

// unified returns the differences between want and got as a unified diff.
func unified(want, got string) string {
	diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(want), B: difflib.SplitLines(got),
		FromFile: "expected", ToFile: "result", Context: 4,
	})
	if err != nil {
		return "expected:\n" + want + "\nresult:\n" + got
	}
	return diff
}
