// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"flag"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refract-project/refract/sdk"
)

var update = flag.Bool("update", false, "write what the plugins give as the expected results")

// Option changes what a test checks.
type Option func(*options)

type options struct{ native *sdk.Plugin }

// Native makes a test compare the native build with the module. plugin is the result of sdk.Register.
func Native(plugin *sdk.Plugin) Option {
	return func(o *options) { o.native = plugin }
}

func apply(list []Option) options {
	var o options
	for _, option := range list {
		option(&o)
	}
	return o
}

// Run tests a module with all cases below dir.
func Run(t *testing.T, module, dir string, opts ...Option) {
	t.Helper()
	cases, err := readCases(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := Open(t, module)
	if *update {
		if err := m.checkWorks(t, cases); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			out := Check(t, m, cases[name], opts...)
			compareGolden(t, filepath.Join(dir, name), out)
			t.Logf("fuel %d, memory %d KiB", out.Fuel, out.Memory>>10)
		})
	}
}

// Check runs a case, and checks properties that every plugin must have: the plugin does not modify its input, its hook
// is idempotent, and both builds give the same result.
func Check(t testing.TB, m *Module, c Case, opts ...Option) Outcome {
	t.Helper()
	o := apply(opts)
	before := c.clone()
	out := m.Run(t, c)
	if diff := diff(before, c); diff != "" {
		t.Errorf("the call changed its input (-before +after):\n%s", diff)
	}
	if o.native != nil {
		compareBuilds(t, out, runNative(o.native, before))
	}
	if !expected(out.Err) {
		t.Errorf("the plugin is at fault: %v", out.Err)
	}
	if out.Object != nil {
		diff := diffOutcome(out, m.Run(t, c.again(out.Object)))
		if diff != "" && diffOutcome(out, m.Run(t, c.again(c.withLostAnnotations(out.Object)))) == "" {
			// The excluded annotations are missing in the second run. This difference does not count, because the hook
			// is idempotent with them.
			diff = ""
		}
		if diff != "" {
			t.Errorf("the hook is not idempotent, it changes its own result (-once +twice):\n%s", diff)
		}
	}
	return out
}

func compareBuilds(t testing.TB, module, native Outcome) {
	t.Helper()
	if (module.Err != nil) != (native.Err != nil) {
		t.Errorf("the builds differ: the module gives the error %v, the native build %v", module.Err, native.Err)
		return
	}
	if diff := diffOutcome(module, native); diff != "" {
		t.Errorf("the builds differ (-module +native):\n%s", diff)
	}
	if diff := diff(module.Warnings, native.Warnings); diff != "" {
		t.Errorf("the builds warn differently (-module +native):\n%s", diff)
	}
}

// diffOutcome compares the objects and the skips of two outcomes. It does not compare the texts of errors, because they
// differ between the builds.
func diffOutcome(a, b Outcome) string {
	if (a.Err != nil) != (b.Err != nil) {
		return cmp.Diff(a.failure(), b.failure())
	}
	return diff(a.Object, b.Object) + diff(a.SkipReason, b.SkipReason)
}

// diff returns the result of cmp.Diff, but is faster if the values are equal.
func diff(a, b any) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return cmp.Diff(a, b)
}
