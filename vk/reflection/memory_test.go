// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
)

var key = Key{Namespace: "shop", Name: "web"}

// A story is a list of writes, one every gap; the first that is refused ends it.
func writes(m *memory, clock *clocktesting.FakeClock, gap time.Duration, story string) (refusedAt int) {
	for i, state := range story {
		if err := m.mayWrite(key, 0, uint64(state)); err != nil {
			return i
		}
		m.wrote(key, 0, uint64(state))
		clock.Step(gap)
	}
	return -1
}

func TestOscillation(t *testing.T) {
	for _, tc := range []struct {
		name, story string
		gap         time.Duration
		refusedAt   int
	}{
		{"back and forth", "ABAB", time.Second, 3},
		{"there and back", "ABA", time.Second, -1},
		{"slowly back and forth", "ABABABABAB", 45 * time.Second, -1},
		{"always new", "ABCDEFGHIJKLMNOP", time.Second, -1},
		{"three in turn", "ABCABCABC", time.Second, -1},
		{"the same again and again", "AAAAAAAAAA", time.Second, 8},
	} {
		clock := fakeClock()
		if got := writes(newMemory(clock), clock, tc.gap, tc.story); got != tc.refusedAt {
			t.Errorf("%s: refused at %d, want %d", tc.name, got, tc.refusedAt)
		}
	}
}

func TestQuarantineEnds(t *testing.T) {
	clock := fakeClock()
	m := newMemory(clock)
	writes(m, clock, time.Second, "ABAB")
	var fight *quarantineError
	if err := m.mayWrite(key, 0, 'A'); !errors.As(err, &fight) {
		t.Errorf("in quarantine: %v, want a quarantineError", err)
	}
	if err := m.mayWrite(Key{Namespace: "shop", Name: "other"}, 0, 'A'); err != nil {
		t.Errorf("another object: %v", err)
	}
	if err := m.mayWrite(key, 0, 'C'); err != nil {
		t.Errorf("something new is wanted: %v", err)
	}
	writes(m, clock, time.Second, "ABAB")
	clock.Step(quarantineFor + time.Second)
	if err := m.mayWrite(key, 0, 'A'); err != nil {
		t.Errorf("after the quarantine: %v", err)
	}
}

func TestAccepted(t *testing.T) {
	m := newMemory(fakeClock())
	if m.accepted(key, 0, 0) {
		t.Error("an unknown object is accepted")
	}
	m.wrote(key, 0, 1)
	m.accept(key, 1, 2)
	if !m.accepted(key, 1, 2) || m.accepted(key, 1, 3) || m.accepted(key, 3, 2) {
		t.Error("only the very pair is accepted")
	}
	m.forget(key)
	if m.accepted(key, 1, 2) {
		t.Error("a forgotten object is accepted")
	}
}

func object(uid, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": uid, "resourceVersion": version}}}
}

func TestMutationCache(t *testing.T) {
	clock := fakeClock()
	l := newMutationCache(clock)
	see := func(cached *unstructured.Unstructured) string {
		t.Helper()
		got, going := l.view(key, cached)
		switch {
		case going:
			return "going"
		case got == nil:
			return "absent"
		default:
			return got.GetResourceVersion()
		}
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("nothing written", see(nil), "absent")

	l.wrote(key, nil, object("u", "10"))
	expect("created, watch late", see(nil), "10")
	expect("an old state", see(object("u", "9")), "10")
	if !l.seen(key, nil, object("u", "10"), false) {
		t.Error("our own write is not recognised")
	}
	expect("watch has it", see(object("u", "10")), "10")
	if l.seen(key, object("u", "10"), object("u", "11"), false) {
		t.Error("somebody else's write is taken for ours")
	}

	l.wrote(key, object("u", "11"), object("u", "13"))
	if l.seen(key, object("u", "11"), object("u", "12"), false) {
		t.Error("a write just before ours is taken for ours")
	}
	if l.seen(key, object("u", "12"), object("u", "13"), false) {
		t.Error("our write on top of one that we had not seen is taken for an echo")
	}
	l.wrote(key, object("u", "11"), object("u", "12"))
	if l.seen(key, object("u", "11"), object("u", "13"), false) {
		t.Error("a write after ours is taken for ours")
	}
	expect("after that", see(object("u", "13")), "13")

	l.deleted(key, object("u", "13"))
	expect("deleted, watch late", see(object("u", "13")), "going")
	expect("terminating", see(object("u", "14")), "14")
	l.deleted(key, object("u", "14"))
	if l.seen(key, nil, object("u", "15"), true) {
		t.Error("a deletion is no echo: what follows from it must be done")
	}
	expect("gone", see(nil), "absent")

	l.wrote(key, nil, object("u", "20"))
	clock.Step(writeGrace + time.Second)
	expect("the event came before the answer", see(nil), "absent")

	// Made, deleted and made again while the watch is late: what is gone does not come back.
	l.wrote(key, nil, object("first", "30"))
	l.deleted(key, object("first", "30"))
	l.seen(key, nil, object("first", "30"), false)
	expect("its beginning comes after its end", see(object("first", "30")), "going")
	l.wrote(key, nil, object("second", "32"))
	expect("the watch is still at the first", see(object("first", "30")), "32")
	expect("the watch has the second", see(object("second", "32")), "32")
}

// A copy that was made, and deleted by somebody, in a gap of the watch: nothing ever tells of it, and yet it is missed.
func TestUnobserved(t *testing.T) {
	clock := fakeClock()
	l := newMutationCache(clock)
	named := func(name string) Key { return Key{Namespace: "shop", Name: name} }
	l.wrote(named("lost"), nil, object("a", "10"))
	l.wrote(named("there"), nil, object("b", "11"))
	l.wrote(named("replaced"), nil, object("c", "12"))
	l.wrote(named("late"), object("d", "3"), object("d", "13"))
	l.deleted(named("gone"), object("e", "5"))
	l.deleted(named("going"), object("f", "6"))
	cache := map[Key]*unstructured.Unstructured{named("there"): object("b", "11"), named("replaced"): object("z", "20"), named("late"): object("d", "3"), named("going"): object("f", "6")}
	look := func() (names []string) {
		for _, key := range l.unobserved(func(key Key) *unstructured.Unstructured { return cache[key] }) {
			names = append(names, key.Name)
		}
		slices.Sort(names)
		return names
	}
	if got := look(); len(got) > 0 {
		t.Errorf("the watch still has time, and %v are looked at", got)
	}
	clock.Step(writeGrace + time.Second)
	if got, want := look(), []string{"going", "late", "lost"}; !slices.Equal(got, want) {
		t.Errorf("%v are looked at, want %v", got, want)
	}
	if got := look(); len(got) > 0 {
		t.Errorf("%v are looked at again", got)
	}
}

func fakeClock() *clocktesting.FakeClock { return clocktesting.NewFakeClock(time.Unix(1000, 0)) }
