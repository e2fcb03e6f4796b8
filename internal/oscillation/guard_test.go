// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package oscillation

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

const key = "shop/web"

func fakeClock() *clocktesting.FakeClock { return clocktesting.NewFakeClock(time.Unix(1000, 0)) }

// writes writes a list of states, with the given gap between two writes. It stops at the first write that is refused,
// and returns the index of this write.
func writes(g *Guard[string], clock *clocktesting.FakeClock, gap time.Duration, story string) (refusedAt int) {
	for i, state := range story {
		if err := g.MayWrite(key, 0, uint64(state)); err != nil {
			return i
		}
		g.RecordWrite(key, 0, uint64(state))
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
		{"a round in ten seconds", "AAAAAAAAAAAA", 10 * time.Second, 8},
		{"slowly back and forth", "ABABABABAB", 45 * time.Second, 8},
		{"a repair now and then", "AAAAAAAAAAAA", 2 * time.Minute, -1},
		{"always new", "ABCDEFGHIJKLMNOP", time.Second, -1},
		{"three in turn", "ABCABCABC", time.Second, -1},
		{"the same again and again", "AAAAAAAAAA", time.Second, 8},
	} {
		clock := fakeClock()
		if got := writes(New[string](clock, Standard), clock, tc.gap, tc.story); got != tc.refusedAt {
			t.Errorf("%s: refused at %d, want %d", tc.name, got, tc.refusedAt)
		}
	}
}

func quarantineOf(t *testing.T, g *Guard[string], cause, state uint64) *QuarantineError {
	t.Helper()
	var fight *QuarantineError
	require.True(t, errors.As(g.MayWrite(key, cause, state), &fight), "the write is allowed")
	return fight
}

// TestQuarantinesGrow checks that each quarantine in a fight is longer than the previous one, up to the limit, and that
// one write is allowed between two quarantines.
func TestQuarantinesGrow(t *testing.T) {
	clock := fakeClock()
	g := New[string](clock, Standard)
	writes(g, clock, time.Second, "AAAAAAAA")
	for i, want := range []time.Duration{1, 2, 4, 8, 15, 15} {
		want *= time.Minute
		fight := quarantineOf(t, g, 0, 'A')
		assert.Equal(t, want, fight.For, "quarantine %d", i)
		if i > 0 {
			assert.True(t, fight.Began)
		}
		clock.Step(want - time.Second)
		assert.False(t, quarantineOf(t, g, 0, 'A').Began)
		clock.Step(2 * time.Second)
		require.NoError(t, g.MayWrite(key, 0, 'A'), "the write after quarantine %d", i)
		g.RecordWrite(key, 0, 'A')
		clock.Step(10 * time.Second)
	}
}

// TestFightsEnd checks that a fight has ended when the object was not changed for a while, and that the next fight
// starts with the shortest quarantine.
func TestFightsEnd(t *testing.T) {
	clock := fakeClock()
	g := New[string](clock, Standard)
	writes(g, clock, time.Second, "AAAAAAAAA")
	require.Equal(t, 1, g.Quarantined())
	clock.Step(Standard.First + time.Second)
	assert.Zero(t, g.Quarantined())
	require.NoError(t, g.MayWrite(key, 0, 'A'))
	g.RecordWrite(key, 0, 'A')
	clock.Step(slowWindow)
	assert.Equal(t, 8, writes(g, clock, time.Second, "AAAAAAAAAA"), "the first refused write after the fight")
	assert.Equal(t, Standard.First, quarantineOf(t, g, 0, 'A').For)
}

// TestQuarantineRemembersTheCause checks that alternating states count as a fight only if their cause does not
// alternate.
func TestQuarantineRemembersTheCause(t *testing.T) {
	g, flips := New[string](fakeClock(), Standard), 0
	for i := range 40 { // the original object alternates, and so does the copy
		require.NoErrorf(t, g.MayWrite(key, uint64(i%2), uint64(i%2)), "write %d", i)
		g.RecordWrite(key, uint64(i%2), uint64(i%2))
	}
	for ; g.MayWrite(key, 0, uint64(flips%2)) == nil; flips++ {
		g.RecordWrite(key, 0, uint64(flips%2))
	}
	if flips > writeLimit {
		t.Errorf("a fight was stopped after %d writes, want at most %d", flips, writeLimit)
	}
	assert.NoError(t, g.MayWrite(key, 1, 0), "something else is asked for")
}

// TestQuarantineForgets checks that a quarantine ends when the desired state changes, and that it does not affect other
// objects.
func TestQuarantineForgets(t *testing.T) {
	clock := fakeClock()
	g := New[string](clock, Standard)
	writes(g, clock, time.Second, "ABAB")
	assert.NoError(t, g.MayWrite("shop/other", 0, 'A'), "another object")
	require.NoError(t, g.MayWrite(key, 0, 'C'), "something else is desired")
	assert.NoError(t, g.MayWrite(key, 0, 'A'), "one of the two after something else was desired")

	g = New[string](clock, Standard)
	writes(g, clock, time.Second, "ABA")
	clock.Step(flipWindow + time.Second)
	assert.NoError(t, g.MayWrite(key, 0, 'B'), "a fourth write after the window")
	g.DropKey(key)
	assert.Equal(t, 3, writes(g, clock, time.Second, "BABA"), "of an object that was forgotten")
}

// TestProtectiveQuarantinesAreShort checks that objects that restrict a party are rewritten within seconds, no matter
// how long a fight lasts.
func TestProtectiveQuarantinesAreShort(t *testing.T) {
	clock := fakeClock()
	g := New[string](clock, Protective)
	refused := 0
	for range 600 { // for ten minutes, a client immediately reverts each write
		if g.MayWrite(key, 0, 'A') == nil {
			g.RecordWrite(key, 0, 'A')
			refused = 0
		} else if refused++; refused > 10 {
			t.Fatal("the object was not written for longer than ten seconds")
		}
		clock.Step(time.Second)
	}
}

// TestQuarantineNamesItsRival checks that the rival in the Event is remembered until the quarantine ends.
func TestQuarantineNamesItsRival(t *testing.T) {
	clock := fakeClock()
	g := New[string](clock, Standard)
	writes(g, clock, time.Second, "AAAAAAAAA")
	g.RecordRival(key, "argocd does it")
	assert.ErrorContains(t, g.MayWrite(key, 0, 'A'), "8 times: argocd does it; skipping it for 1m0s")
}

func TestMemoryIsBounded(t *testing.T) {
	clock := fakeClock()
	g := New[string](clock, Standard)
	for i := range 1000 {
		g.RecordWrite(key, 0, uint64(i))
		clock.Step(time.Second)
	}
	if n := len(g.byKey[key].writes); n > writeLimit {
		t.Errorf("%d writes are remembered, want at most %d", n, writeLimit)
	}
	for i := range 1000 {
		g.RecordWrite(string(rune(i)), 0, 0)
	}
	clock.Step(2 * slowWindow)
	g.RecordWrite(key, 0, 0)
	if n := len(g.byKey); n != 1 {
		t.Errorf("%d objects are remembered, want the one that was written", n)
	}
}
