// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package mutationcache

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

var key = toolscache.ObjectName{Namespace: "shop", Name: "web"}

func fakeClock() *clocktesting.FakeClock { return clocktesting.NewFakeClock(time.Unix(1000, 0)) }

func object(uid, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": uid, "resourceVersion": version}}}
}

// isCached returns the argument of View for a cache that contains this object, or nothing if it is nil.
func isCached(object *unstructured.Unstructured) func() *unstructured.Unstructured {
	return func() *unstructured.Unstructured { return object }
}

func TestCache(t *testing.T) {
	clock := fakeClock()
	c := New(clock)
	see := func(cached *unstructured.Unstructured) string {
		t.Helper()
		got, going := c.View(key, isCached(cached))
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

	c.Wrote(key, nil, object("u", "10"))
	expect("created, watch late", see(nil), "10")
	expect("an old state", see(object("u", "9")), "10")
	if !c.Seen(key, nil, object("u", "10"), false) {
		t.Error("our own write is not recognised")
	}
	expect("watch has it", see(object("u", "10")), "10")
	if c.Seen(key, object("u", "10"), object("u", "11"), false) {
		t.Error("another owner's write is taken for ours")
	}

	c.Wrote(key, object("u", "11"), object("u", "13"))
	if c.Seen(key, object("u", "11"), object("u", "12"), false) {
		t.Error("a write just before ours is taken for ours")
	}
	if c.Seen(key, object("u", "12"), object("u", "13"), false) {
		t.Error("our write on top of one that we had not seen is taken for an echo")
	}
	c.Wrote(key, object("u", "11"), object("u", "12"))
	if c.Seen(key, object("u", "11"), object("u", "13"), false) {
		t.Error("a write after ours is taken for ours")
	}
	expect("after that", see(object("u", "13")), "13")

	c.Deleted(key, object("u", "13"))
	expect("deleted, watch late", see(object("u", "13")), "going")
	expect("terminating", see(object("u", "14")), "14")
	c.Deleted(key, object("u", "14"))
	if c.Seen(key, nil, object("u", "15"), true) {
		t.Error("a deletion is no echo: what follows from it must be done")
	}
	expect("gone", see(nil), "absent")

	c.Wrote(key, nil, object("u", "20"))
	clock.Step(Grace + time.Second)
	expect("the event came before the answer", see(nil), "absent")

	// The object is created, deleted and recreated while the watch lags behind. The deleted object must not reappear.
	c.Wrote(key, nil, object("first", "30"))
	c.Deleted(key, object("first", "30"))
	c.Seen(key, nil, object("first", "30"), false)
	expect("its beginning comes after its end", see(object("first", "30")), "going")
	c.Wrote(key, nil, object("second", "32"))
	expect("the watch is still at the first", see(object("first", "30")), "32")
	expect("the watch has the second", see(object("second", "32")), "32")
}

// TestEventsDuringAView checks that View does not return the state before our write if the watch delivers the result, and
// Seen drops the write, immediately after View has read the cached object. Such a state would be written again.
func TestEventsDuringAView(t *testing.T) {
	c := New(fakeClock())
	for _, tc := range []struct {
		name  string
		event func() // between the call of the function that reads the cached object and its return
		want  string // version that View returns, or "" for nil
	}{
		{"none", func() {}, "11"},
		{"the echo", func() { c.Seen(key, object("u", "10"), object("u", "11"), false) }, "11"},
		{"a later version", func() { c.Seen(key, object("u", "10"), object("u", "12"), false) }, "11"},
		{"the deletion", func() { c.Seen(key, nil, object("u", "11"), true) }, ""},
		{"that the object has vanished", func() { c.Vanished(key, "u") }, ""},
	} {
		c = New(fakeClock())
		c.Wrote(key, object("u", "10"), object("u", "11"))
		got, going := c.View(key, func() *unstructured.Unstructured { tc.event(); return object("u", "10") })
		version := ""
		if got != nil {
			version = got.GetResourceVersion()
		}
		if version != tc.want || going {
			t.Errorf("%s: View returns version %q, going %t, want version %q", tc.name, version, going, tc.want)
		}
	}

	// View must not drop a write that was recorded after the one that it has looked up.
	c = New(fakeClock())
	c.Wrote(key, object("u", "10"), object("u", "11"))
	c.View(key, func() *unstructured.Unstructured {
		c.Wrote(key, object("u", "11"), object("u", "12"))
		return object("u", "11")
	})
	if got, _ := c.View(key, isCached(object("u", "11"))); got.GetResourceVersion() != "12" {
		t.Errorf("the later write is forgotten, and version %s is returned", got.GetResourceVersion())
	}

	// Our deletion is complete when the watch delivers it.
	c = New(fakeClock())
	c.Deleted(key, object("u", "10"))
	got, going := c.View(key, func() *unstructured.Unstructured {
		c.Seen(key, nil, object("u", "10"), true)
		return object("u", "10")
	})
	if got != nil || going {
		t.Errorf("after its deletion the object is %v, going %t", got, going)
	}
}

// TestUnobserved checks that Unobserved returns each of our writes and deletions once if the watch has not delivered it
// within Grace, such as a copy that we created and another client deleted while the watch was interrupted.
func TestUnobserved(t *testing.T) {
	clock := fakeClock()
	c := New(clock)
	named := func(name string) toolscache.ObjectName { return toolscache.ObjectName{Namespace: "shop", Name: name} }
	c.Wrote(named("lost"), nil, object("a", "10"))
	c.Wrote(named("there"), nil, object("b", "11"))
	c.Wrote(named("replaced"), nil, object("c", "12"))
	c.Wrote(named("late"), object("d", "3"), object("d", "13"))
	c.Deleted(named("gone"), object("e", "5"))
	c.Deleted(named("going"), object("f", "6"))
	cache := map[toolscache.ObjectName]*unstructured.Unstructured{named("there"): object("b", "11"), named("replaced"): object("z", "20"), named("late"): object("d", "3"), named("going"): object("f", "6")}
	look := func() (names []string) {
		for _, key := range c.Unobserved(func(key toolscache.ObjectName) *unstructured.Unstructured { return cache[key] }) {
			names = append(names, key.Name)
		}
		slices.Sort(names)
		return names
	}
	if got := look(); len(got) > 0 {
		t.Errorf("the watch still has time, and %v are looked at", got)
	}
	clock.Step(Grace + time.Second)
	// A call of View must not prevent Unobserved from returning the object.
	if seen, _ := c.View(named("lost"), isCached(nil)); seen != nil {
		t.Error("a write that the watch should have delivered long ago is believed")
	}
	if got, want := look(), []string{"going", "gone", "late", "lost"}; !slices.Equal(got, want) {
		t.Errorf("%v are looked at, want %v", got, want)
	}
	if got := look(); len(got) > 0 {
		t.Errorf("%v are looked at again", got)
	}
}

// TestEchoBeforeTheAnswer checks that an echo that arrives before the response to the write is recognized when the
// response arrives.
func TestEchoBeforeTheAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		events []string // versions in the events of the watch, each following the previous one
		answer string   // version in the response, or "" if the write failed
		news   bool
	}{
		"nothing":                {nil, "12", false},
		"the echo":               {[]string{"12"}, "12", false},
		"another write before":   {[]string{"11", "12"}, "12", true},
		"another write after":    {[]string{"12", "13"}, "12", true},
		"the write failed":       {[]string{"12"}, "", true},
		"failed, nothing to see": {nil, "", false},
	} {
		c := New(fakeClock())
		before := object("u", "10")
		c.Begin(key)
		for _, v := range tc.events {
			if now := object("u", v); !c.Seen(key, before, now, false) {
				t.Errorf("%s: version %s is told before the answer is there", name, v)
			} else {
				before = now
			}
		}
		if tc.answer != "" {
			c.Wrote(key, object("u", "10"), object("u", tc.answer))
		}
		if got := c.End(key); got != tc.news {
			t.Errorf("%s: news %t, want %t", name, got, tc.news)
		}
		if len(c.flying) > 0 || len(tc.events) > 0 && len(c.last) > 0 {
			t.Errorf("%s: %v is remembered", name, c.last)
		}
	}
}

// TestDeletionBeforeTheAnswer checks that an object does not reappear if the watch delivers its deletion before the
// response to a write.
func TestDeletionBeforeTheAnswer(t *testing.T) {
	c := New(fakeClock())
	c.Seen(key, nil, object("u", "10"), false)
	c.Seen(key, nil, object("u", "11"), true)
	c.Wrote(key, nil, object("u", "10"))
	if got, going := c.View(key, isCached(nil)); got != nil || going {
		t.Errorf("after its deletion the object is %v, going %t", got, going)
	}
	c.Deleted(key, object("u", "10"))
	if len(c.last) != 0 {
		t.Error("a deletion that the watch has delivered is remembered forever")
	}
	// The object must reappear: it was not deleted, but had only lost its labels for a while.
	c.Seen(key, nil, object("u", "12"), false)
	c.Wrote(key, object("u", "12"), object("u", "13"))
	if got, _ := c.View(key, isCached(object("u", "12"))); got.GetResourceVersion() != "13" {
		t.Errorf("the object has version %s, want that of the write", got.GetResourceVersion())
	}
}

func TestDeletionsAreBounded(t *testing.T) {
	c := New(fakeClock())
	for i := range 3 * goneMemory {
		c.Seen(key, nil, object(fmt.Sprint(i), "10"), true)
	}
	if len(c.gone) != goneMemory {
		t.Errorf("%d deletions are remembered, want %d", len(c.gone), goneMemory)
	}
}

// TestVanished checks that an object that is known to be deleted is not returned even if it is in the cache, and that
// writes of the object are dropped.
func TestVanished(t *testing.T) {
	c := New(fakeClock())
	c.Wrote(key, object("u", "10"), object("u", "11"))
	c.Vanished(key, "u")
	if !c.IsGone("u") {
		t.Error("what has vanished is not known to be gone")
	}
	if got, _ := c.View(key, isCached(object("u", "10"))); got != nil {
		t.Errorf("an object that is gone is shown in version %s", got.GetResourceVersion())
	}
	if got, _ := c.View(key, isCached(nil)); got != nil {
		t.Errorf("what was written to it is shown: version %s", got.GetResourceVersion())
	}
	if got, _ := c.View(key, isCached(object("v", "12"))); got == nil || got.GetUID() != "v" {
		t.Error("another object of its name is not shown")
	}
	// The response to a write arrives after the deletion of the object.
	c.Wrote(key, object("v", "12"), object("v", "13"))
	c.Wrote(key, object("u", "11"), object("u", "14"))
	if got, _ := c.View(key, isCached(nil)); got != nil {
		t.Errorf("a write to what is gone is shown: version %s", got.GetResourceVersion())
	}
	// An event of one object must not drop the state of another object.
	c.Wrote(key, nil, object("w", "20"))
	c.Vanished(key, "u")
	if got, _ := c.View(key, isCached(nil)); got == nil || got.GetUID() != "w" {
		t.Error("the write to another object is forgotten")
	}
}

// TestEndOfAnEarlierObject checks that the deletion of an earlier object with the same name counts neither as the
// deletion of our object nor as an echo.
func TestEndOfAnEarlierObject(t *testing.T) {
	c := New(fakeClock())
	c.Wrote(key, nil, object("ours", "12"))
	if c.Seen(key, nil, object("earlier", "11"), true) {
		t.Error("the deletion of another object is taken for an echo")
	}
	if got, _ := c.View(key, isCached(nil)); got == nil || got.GetUID() != "ours" {
		t.Error("our write is forgotten with the deletion of another object")
	}

	c = New(fakeClock())
	c.Begin(key)
	c.Seen(key, nil, object("earlier", "11"), true)
	c.Seen(key, nil, object("ours", "12"), false)
	c.Wrote(key, nil, object("ours", "12"))
	if !c.End(key) {
		t.Error("the echo of our write hides what came before it")
	}
}
