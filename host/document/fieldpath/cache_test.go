// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestSlotsChangeHands checks that slots are reused for other texts, because a Cache outlives the plugins that use it.
func TestSlotsChangeHands(t *testing.T) {
	c, memory := new(Cache), new([256]byte)
	put := func(text string) string { return unsafe.String(&memory[0], copy(memory[:], text)) }
	use := func(path string, times int) *known {
		t.Helper()
		for range times {
			_, err := c.Route(put(path))
			require.NoError(t, err)
		}
		return c.slotOf(put(path)).known
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
	c := new(Cache)
	firstError := func(paths string) error {
		for l := c.Lines(paths); l.More; {
			if _, err := l.Next(); err != nil {
				return err
			}
		}
		return nil
	}
	for _, paths := range []string{
		strings.Repeat("a.long", 100), strings.Repeat("a.b\n", 100) + "a", "a..b", "a.b\na..b", "a\n\nb", "a[",
	} {
		first := firstError(paths)
		for range 5 {
			if err := firstError(paths); fmt.Sprint(err) != fmt.Sprint(first) {
				t.Errorf("%.10s…: %v, then %v", paths, first, err)
			}
		}
	}
	// Only the text "a\n\nb" must have been learned. Each of its lines is a path.
	if n := c.Len(); n != 1 {
		t.Errorf("%d learned", n)
	}
}
