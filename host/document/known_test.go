// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
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

// knows returns the number of stored texts.
func (d *Document) knows() (n int) {
	for _, s := range d.paths {
		if s.known != nil {
			n++
		}
	}
	return n
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
	if d.knows() == 0 {
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
	memory, used, free := make([]byte, 1<<13), map[*pathSlot]bool{}, 0
	// alone places a text at an address whose slot no other text uses.
	alone := func(text string) string {
		for {
			placed := unsafe.String(&memory[free], copy(memory[free:], text))
			free += len(text)
			if slot := d.slotOf(placed); !used[slot] {
				used[slot] = true
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
	if d.knows() < 3 {
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

// TestSlotsChangeHands checks that slots are reused for other texts, because a Document outlives the plugins that use
// it.
func TestSlotsChangeHands(t *testing.T) {
	d, memory := New(), new(guestMemory)
	d.Reset(numbers())
	use := func(path string, times int) *known {
		t.Helper()
		for range times {
			_, err := d.Root().At(memory.put(path))
			require.NoError(t, err)
		}
		return d.slotOf(memory.put(path)).known
	}
	if k := use("a.x", 2); k == nil || k.text != "a.x" {
		t.Fatalf("%v was learned", k)
	}
	if k := use("b.x", maxCredit); k.text != "a.x" {
		t.Errorf("%s took the slot of one in use", k.text)
	}
	if k := use("b.x", 2); k.text != "b.x" {
		t.Errorf("%s stays in a slot that another has asked for %d times", k.text, maxCredit+2)
	}
}

func TestWhatIsNotLearned(t *testing.T) {
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
	// Only the text "a\n\nb" must have been learned. For removals, each of its lines is a path.
	if n := d.knows(); n != 1 {
		t.Errorf("%d learned", n)
	}
}
