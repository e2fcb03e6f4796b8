// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package oscillation

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

var key = cache.ObjectName{Namespace: "shop", Name: "web"}

func fakeClock() *clocktesting.FakeClock { return clocktesting.NewFakeClock(time.Unix(1000, 0)) }

// A story is a list of writes, one every gap; the first that is refused ends it.
func writes(m *Memory, clock *clocktesting.FakeClock, gap time.Duration, story string) (refusedAt int) {
	for i, state := range story {
		if err := m.MayWrite(key, 0, uint64(state)); err != nil {
			return i
		}
		m.Wrote(key, 0, uint64(state))
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
		if got := writes(New(clock), clock, tc.gap, tc.story); got != tc.refusedAt {
			t.Errorf("%s: refused at %d, want %d", tc.name, got, tc.refusedAt)
		}
	}
}

func TestQuarantineEnds(t *testing.T) {
	clock := fakeClock()
	m := New(clock)
	writes(m, clock, time.Second, "ABAB")
	var fight *QuarantineError
	if err := m.MayWrite(key, 0, 'A'); !errors.As(err, &fight) {
		t.Errorf("in quarantine: %v, want a QuarantineError", err)
	}
	assert.NoError(t, m.MayWrite(cache.ObjectName{Namespace: "shop", Name: "other"}, 0, 'A'), "another object")
	assert.NoError(t, m.MayWrite(key, 0, 'C'), "something new is desired")
	writes(m, clock, time.Second, "ABAB")
	clock.Step(Quarantine + time.Second)
	assert.NoError(t, m.MayWrite(key, 0, 'A'), "after the quarantine")
}

func TestAccepted(t *testing.T) {
	m := New(fakeClock())
	if m.Accepted(key, 0, 0) {
		t.Error("an unknown object is accepted")
	}
	m.Wrote(key, 0, 1)
	if m.Accepted(key, 0, 0) {
		t.Error("an object is accepted of which the API server made nothing else")
	}
	m.Accept(key, 1, 2)
	if !m.Accepted(key, 1, 2) || m.Accepted(key, 1, 3) || m.Accepted(key, 3, 2) {
		t.Error("only the very pair is accepted")
	}
	m.Forget(key)
	if m.Accepted(key, 1, 2) {
		t.Error("a forgotten object is accepted")
	}
}

// What changes to and fro because its cause does is no fight; what does so without a cause is.
func TestQuarantineRemembersTheCause(t *testing.T) {
	m, flips := New(fakeClock()), 0
	for i := range 40 { // the object goes to and fro, and so does the copy
		require.NoErrorf(t, m.MayWrite(key, uint64(i%2), uint64(i%2)), "write %d", i)
		m.Wrote(key, uint64(i%2), uint64(i%2))
	}
	for ; m.MayWrite(key, 0, uint64(flips%2)) == nil; flips++ {
		m.Wrote(key, 0, uint64(flips%2))
	}
	if flips > flipLimit {
		t.Errorf("a fight was stopped after %d writes, want at most %d", flips, flipLimit)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	clock := fakeClock()
	m := New(clock)
	for i := range 1000 {
		m.Wrote(key, 0, uint64(i))
		clock.Step(time.Second)
	}
	if n := len(m.byKey[key].hashes); n > 61 {
		t.Errorf("%d writes are remembered, want those of a minute", n)
	}
}

// A status is accepted that this process has not written: it finds it so when it starts.
func TestAcceptedWithoutAWrite(t *testing.T) {
	m := New(fakeClock())
	m.Accept(key, 1, 2)
	if !m.Accepted(key, 1, 2) {
		t.Error("what was accepted is not remembered")
	}
}

// What is newly desired during a quarantine begins with a clean slate, and what is older than the window does not count.
func TestQuarantineForgets(t *testing.T) {
	clock := fakeClock()
	m := New(clock)
	writes(m, clock, time.Second, "ABAB")
	require.NoError(t, m.MayWrite(key, 0, 'C'), "something else is desired")
	assert.NoError(t, m.MayWrite(key, 0, 'A'), "one of the two after something else was desired")

	m = New(clock)
	writes(m, clock, time.Second, "ABA")
	clock.Step(flipWindow + time.Second)
	assert.NoError(t, m.MayWrite(key, 0, 'B'), "a fourth write after the window")
}
