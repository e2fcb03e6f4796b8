// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// guestMemory is a block of memory in which a guest writes one text after the other.
type guestMemory [256]byte

func (m *guestMemory) put(text string) string { return unsafe.String(&m[0], copy(m[:], text)) }

func numbers() map[string]any {
	list := make([]any, 100)
	for i := range list {
		list[i] = map[string]any{"n": fmt.Sprint(i)}
	}
	return map[string]any{"list": list, "a": map[string]any{"x": "ax", "y": "ay"}, "b": map[string]any{"x": "bx", "y": "by"}}
}

func TestKnownPathIsKnownByItsText(t *testing.T) {
	d, memory := New(), new(guestMemory)
	read := func(path, want string) {
		t.Helper()
		v, err := d.Root().At(memory.put(path))
		if got, _ := v.Text(); got != want || err != nil {
			t.Fatalf("%s reads %q (%v), want %q", path, got, err, want)
		}
	}
	for range 5 {
		d.Reset(numbers())
		for range 5 {
			read("a.x", "ax")
		}
		// Each path must be recognized as another one, although all of them have the same length and the same
		// address.
		for _, path := range []string{"b.x", "a.y", "b.y", "a.x"} {
			read(path, path[:1]+path[2:])
		}
		if n, err := d.Root().Remove(memory.put("a.x\nb.x")); n != 2 || err != nil {
			t.Fatalf("removed %d (%v)", n, err)
		}
		if n, err := d.Root().Remove(memory.put("a.y\na.z")); n != 1 || err != nil {
			t.Fatalf("removed %d (%v)", n, err)
		}
		read("b.y", "by")
		require.NoError(t, d.Root().SetString(memory.put("b.x"), "new"))
		memory.put("a.y")
		if got := fmt.Sprint(d.Value()["b"]); got != "map[x:new y:by]" {
			t.Fatalf("b is %s", got)
		}
	}
	if d.paths.Len() == 0 {
		t.Error("no path was learned")
	}
	// Newlines must separate paths only in removals. In reads, they are part of a key.
	d.Reset(map[string]any{"a\nb": "key", "a": "1", "b": "2"})
	for range 3 {
		read("a\nb", "key")
	}
	if n, _ := d.Root().Remove(memory.put("a\nb")); n != 2 {
		t.Errorf("removed %d", n)
	}
	read("a\nb", "key")
}

// TestKnownPathsCostTheSame checks that an operation has the same result, the same cost and the same visited nodes,
// whether or not its path is known.
func TestKnownPathsCostTheSame(t *testing.T) {
	d := New()
	memory, probe, free := make([]byte, 1<<13), new(fieldpath.Cache), 0
	// alone places a text at an address whose slot no other text uses. A text whose slot is in use is not stored.
	alone := func(text string) string {
		for {
			placed := unsafe.String(&memory[free], copy(memory[free:], text))
			free += len(text)
			before := probe.Len()
			for range 2 {
				_, _ = probe.Route(placed)
			}
			if probe.Len() > before {
				return placed
			}
		}
	}
	paths, globbed, element := alone("a.x\na.none\na.y\nlist.*.n\nb.*\nlist[3]"), alone("b"), alone("list[5]")
	costs := func(d *Document) string {
		d.Reset(numbers())
		n, err := d.Root().Remove(paths)
		work := d.TakeWork()
		k, globErr := d.Root().RemoveKeysGlob(globbed, "x*", "")
		place, placeErr := d.Root().Get(element)
		return fmt.Sprint(n, err, work, k, globErr, d.TakeWork(), place.ID(), placeErr, d.Nodes(), d.Value())
	}
	first := costs(d)
	for i := range 5 {
		if next := costs(d); next != first {
			t.Fatalf("time %d:\n%s\nfirst:\n%s", i, next, first)
		}
	}
	if d.paths.Len() < 3 {
		t.Error("the paths were not learned")
	}
}

func TestPathsMadeUpAnewDoNotAllocate(t *testing.T) {
	d, base, memory := New(), numbers(), new(guestMemory)
	texts := make([]string, 100)
	for i := range texts {
		texts[i] = fmt.Sprintf("list[%d].n", i)
	}
	run := func() {
		d.Reset(base)
		for i, path := range texts {
			v, err := d.Root().At(memory.put(path))
			if got, _ := v.Text(); err != nil || got != path[5:strings.IndexByte(path, ']')] {
				t.Fatalf("element %d: %q, %v", i, got, err)
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(50, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestErrorsStayTheSame checks that a malformed path gives the same error each time.
func TestErrorsStayTheSame(t *testing.T) {
	d := New()
	d.Reset(numbers())
	for _, paths := range []string{
		strings.Repeat("a.long", 100), strings.Repeat("a.b\n", 100) + "a", "a..b", "a.b\na..b", "a\n\nb", "a[",
	} {
		_, first := d.Root().Remove(paths)
		for range 5 {
			_, err := d.Root().Remove(paths)
			if fmt.Sprint(err) != fmt.Sprint(first) {
				t.Errorf("%.10s…: %v, then %v", paths, first, err)
			}
		}
	}
}
