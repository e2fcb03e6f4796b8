// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"errors"
	"testing"

	"github.com/refract-project/refract/host"
)

// Property generates count objects from the cases below dir, and runs [Check] for each of them. It generates the same
// objects every time. It stops at the first object that fails, and prints the object.
func Property(t *testing.T, module, dir string, count int, opts ...Option) {
	t.Helper()
	cases, err := readCases(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, made := Open(t, module), newCorpus(cases)
	var tally outcomes
	for seed := range uint64(count) {
		c := made.make(seed)
		tally.add(Check(t, m, c, opts...))
		if t.Failed() {
			t.Fatalf("seed %d, hook %v:\n%s\ncontext:\n%s", seed, c.Hook, encode(c.Object), encode(c.Context))
		}
	}
	t.Logf("%d objects: %d crossed, %d skipped, %d refused", count, tally.crossed, tally.skipped, tally.refused)
	if tally.crossed < count/4 {
		t.Errorf("only %d of %d objects crossed: the cases are too fragile to learn from", tally.crossed, count)
	}
}

// Fuzz is like [Property], but gets the seeds from go test -fuzz.
func Fuzz(f *testing.F, module, dir string, opts ...Option) {
	f.Helper()
	cases, err := readCases(dir)
	if err != nil {
		f.Fatal(err)
	}
	m, made := Open(f, module), newCorpus(cases)
	for seed := range uint64(16) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c := made.make(seed)
		Check(t, m, c, opts...)
		if t.Failed() {
			t.Logf("hook %v:\n%s\ncontext:\n%s", c.Hook, encode(c.Object), encode(c.Context))
		}
	})
}

// outcomes contains the numbers of generated objects by outcome.
type outcomes struct{ crossed, skipped, refused int }

func (o *outcomes) add(out Outcome) {
	switch {
	case out.Err != nil:
		o.refused++
	case out.Object == nil:
		o.skipped++
	default:
		o.crossed++
	}
}

// expected reports whether err is a valid result for a malformed object. All other errors are faults of the plugin: a
// trap, running out of fuel, or a forbidden write.
func expected(err error) bool {
	var refused *host.PluginFailedError
	var access *host.AccessError
	return err == nil || errors.As(err, &refused) || errors.As(err, &access)
}
