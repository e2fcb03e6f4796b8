// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/fuel"
	"github.com/refract-project/refract/test/support/wattest"
)

// FuzzInstrument checks with damaged binaries that Instrument does not panic, that all its errors have a type of this
// package, and that the result is valid if and only if the module is valid. If an invalid module could become valid, a
// guest could access the counters, which exist only in the result.
func FuzzInstrument(f *testing.F) {
	seeds, err := filepath.Glob("testdata/golden/*.wat")
	require.NoError(f, err)
	for _, path := range seeds {
		source, err := os.ReadFile(path)
		require.NoError(f, err)
		wasm, err := wattest.Assemble(string(source))
		require.NoError(f, err)
		f.Add(wasm)
	}
	f.Add(assemble(f, generate(7)))
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, wasm []byte) {
		out, err := fuel.Instrument(wasm, fuel.Options{})
		if err != nil {
			if !typed(err) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		ctx, r := context.Background(), runtime(t)
		_, before := r.CompileModule(ctx, wasm)
		_, after := r.CompileModule(ctx, out)
		if before != nil && strings.Contains(before.Error(), "name") {
			// A damaged name section must be removed and not rejected, as the specification requires.
			return
		}
		if (before == nil) != (after == nil) {
			t.Fatalf("the module: %v; the result: %v", before, after)
		}
	})
}

func typed(err error) bool {
	var (
		format      *fuel.FormatError
		unsupported *fuel.UnsupportedError
		limit       *fuel.LimitError
		collision   *fuel.CollisionError
	)
	return errors.As(err, &format) || errors.As(err, &unsupported) || errors.As(err, &limit) || errors.As(err, &collision)
}
