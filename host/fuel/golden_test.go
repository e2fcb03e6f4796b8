// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/fuel"
)

// TestGolden checks that the instrumented modules are equal to the modules in the golden files, which are in the text
// format, and that an engine can compile them.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/golden/*.wat")
	require.NoError(t, err)
	r := runtime(t)
	for _, path := range inputs {
		name := strings.TrimSuffix(path, ".wat")
		if strings.HasSuffix(name, ".want") {
			continue
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			got := instrument(t, assemble(t, read(t, path)), fuel.Options{})
			want := assemble(t, read(t, name+".want.wat"))
			if !bytes.Equal(got, want) {
				t.Errorf("got  %x\nwant %x", got, want)
			}
			if _, err := r.CompileModule(context.Background(), got); err != nil {
				t.Errorf("the result is not valid: %v", err)
			}
		})
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}
