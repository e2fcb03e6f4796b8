// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"
)

const (
	outFile      = "out.yaml"
	skipFile     = "skip.txt"
	errorFile    = "error.txt"
	warningsFile = "warnings.txt"
)

// golden returns the files of an outcome and their content.
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

// compareGolden compares an outcome with the files of its case, or writes them.
func compareGolden(t *testing.T, dir string, out Outcome) {
	t.Helper()
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

// compareFile compares a file with what it should hold, or should not be there
// for, and returns what is wrong.
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

func write(t *testing.T, path, text string, have bool) {
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

// unified is the diff as every developer reads it.
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
