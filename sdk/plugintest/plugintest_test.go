// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/sdk"
	"github.com/refract-project/refract/test/support/wattest"
)

const (
	service = "../../plugins/service/service.wasm"
	cases   = "../../plugins/service/testdata"
)

// recorder records the failures of a test, so that another test can check them.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestDecode(t *testing.T) {
	got, err := decode([]byte("a: 1\nb: 2.5\nc: [x, null, true]\nd: 9007199254740993\ne: {f: 1.5e3}\n"))
	require.NoError(t, err)
	want := map[string]any{
		"a": int64(1), "b": 2.5, "c": []any{"x", nil, true}, "d": int64(9007199254740993), "e": map[string]any{"f": int64(1500)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, text := range []string{"a: 1\na: 2\n", "- a\n", "a: [", "\tb: 1"} {
		if got, err := decode([]byte(text)); err == nil {
			t.Errorf("decode(%q) = %v, want an error", text, got)
		}
	}
}

func TestCaseErrorsNameTheFile(t *testing.T) {
	for file, text := range map[string]string{"in.yaml": "a: [", "context.yaml": "hook: sideways", "config.yaml": "- 1"} {
		dir := t.TempDir()
		for name, content := range map[string]string{"in.yaml": "kind: Pod\n", file: text} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
		if _, err := readCase(dir); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v", file, err)
		}
	}
	if _, err := readCases(t.TempDir()); err == nil {
		t.Error("a folder without cases is accepted")
	}
}

func TestCompareFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	out, failure := path(outFile, "a: 1\nb: 2\n"), path(errorFile, "part of\n")
	for what, test := range map[string]struct {
		path, got string
		have      bool
		want      string
	}{
		"the same":        {out, "a: 1\nb: 2\n", true, ""},
		"another":         {out, "a: 1\nb: 3\n", true, "+b: 3"},
		"another outcome": {out, "", false, "the result is another"},
		"missing":         {filepath.Join(dir, skipFile), "x", true, "is not there"},
		"rightly missing": {filepath.Join(dir, skipFile), "", false, ""},
		"part of a text":  {failure, "this is part of an error\n", true, ""},
		"no part":         {failure, "this is not\n", true, "this is not"},
	} {
		got := compareFile(test.path, test.got, test.have)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", what, got, test.want)
		}
	}
}

// TestCheckFinds checks that Check reports a native build with different results, and a hook that is not idempotent.
func TestCheckFinds(t *testing.T) {
	all, err := readCases(cases)
	require.NoError(t, err)
	m := Open(t, service)
	other := sdk.Register(sdk.Manifest{Name: "other"}, sdk.Outgoing(func(ctx sdk.Context, o sdk.Object) error {
		ctx.Warn("something else")
		return nil
	}))
	r := &recorder{TB: t}
	Check(r, m, all["load-balancer"], Native(other))
	found := strings.Join(r.errors, "\n")
	for _, want := range []string{"the builds differ", "the builds warn differently"} {
		if !strings.Contains(found, want) {
			t.Errorf("%q is not among the failures:\n%s", want, found)
		}
	}
	once, twice := Outcome{Object: map[string]any{"a": "x"}}, Outcome{Object: map[string]any{"a": "xx"}}
	if diffOutcome(once, twice) == "" || diffOutcome(once, once) != "" || diffOutcome(once, Outcome{SkipReason: "x"}) == "" {
		t.Error("a difference between outcomes is not seen, or one is seen that is not there")
	}
}

func TestGeneratorIsDeterministic(t *testing.T) {
	all, err := readCases(cases)
	require.NoError(t, err)
	made := newCorpus(all)
	different, unknown := 0, 0
	for seed := range uint64(200) {
		a, b := made.make(seed), newCorpus(all).make(seed)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("seed %d gives two objects:\n%s", seed, diff)
		}
		text := encode(a.Object)
		if strings.Contains(text, "x-unknown-") {
			unknown++
		}
		if cmp.Diff(a.Object, made.make(seed+1).Object) != "" {
			different++
		}
	}
	if different < 150 || unknown < 20 {
		t.Errorf("of 200 objects %d are unlike the next, %d have unknown fields: the generator is lazy", different, unknown)
	}
}

// TestConcurrentRuns checks that cases that run concurrently have the right results, and no data races if the race
// detector is used.
func TestConcurrentRuns(t *testing.T) {
	all, err := readCases(cases)
	require.NoError(t, err)
	m := Open(t, service)
	want := m.Run(t, all["load-balancer"])
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				if diff := diffOutcome(want, m.Run(t, all["load-balancer"])); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
		})
	}
	group.Wait()
}

// TestFaultsAreNotExpectedResults checks that no expected results are written for a plugin that never works. A
// rejection of an object counts as a result.
func TestFaultsAreNotExpectedResults(t *testing.T) {
	*update = true
	defer func() { *update = false }()
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"broken","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["*"]}`, "",
		`(func (export "outgoing") (result i32) (unreachable))`))
	require.NoError(t, err)
	module := filepath.Join(t.TempDir(), "broken.wasm")
	require.NoError(t, os.WriteFile(module, wasm, 0o600))
	pod := Case{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"}}}

	broken := Open(t, module)
	require.ErrorContains(t, broken.checkWorks(t, map[string]Case{"a": pod, "b": pod}), "works in none of 2 cases, so no expected result is written: case a, ")
	dir := t.TempDir()
	compareGolden(t, dir, broken.Run(t, pod))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the trap was written: %v, %v", left, err)
	}

	refusing := Open(t, "../../plugins/secret/secret.wasm")
	refused, err := readCase("../../plugins/secret/testdata/token-of-a-long-name")
	require.NoError(t, err)
	require.NoError(t, refusing.checkWorks(t, map[string]Case{"a": refused}))
	compareGolden(t, dir, refusing.Run(t, refused))
	if text, err := os.ReadFile(filepath.Join(dir, errorFile)); err != nil || !strings.Contains(string(text), "more than 63 characters") {
		t.Errorf("error.txt has %q, %v", text, err)
	}

	refused.Config = map[string]any{"unknown": true}
	misconfigured := Open(t, "../../plugins/pod/pod.wasm") // the schema in this plugin does not have the configured field
	require.ErrorContains(t, misconfigured.checkWorks(t, map[string]Case{"a": refused}), "unknown")
}
