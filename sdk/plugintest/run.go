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

// Native sets the plugin that sdk.Register returned,
// to check that the native build and the module agree.
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

// Run tests a module on every case folder below dir.
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

// Check runs one case and checks the properties of every plugin: the
// input is not modified, the hook is idempotent, and both builds agree.
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
			diff = "" // it is idempotent on an object that still has the excluded annotations
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

// diffOutcome compares objects and skips. Errors are only compared
// by their presence, because their texts differ between the builds.
func diffOutcome(a, b Outcome) string {
	if (a.Err != nil) != (b.Err != nil) {
		return cmp.Diff(a.failure(), b.failure())
	}
	return diff(a.Object, b.Object) + diff(a.SkipReason, b.SkipReason)
}

// diff returns cmp.Diff, faster for equal values.
func diff(a, b any) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return cmp.Diff(a, b)
}
