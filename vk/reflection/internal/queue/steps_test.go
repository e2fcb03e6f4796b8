// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
)

func newTestQueue(t *testing.T) (*Queue, *clocktesting.FakeClock) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	q := New(clock, func(Key) bool { return false }, func(Key) {})
	t.Cleanup(q.ShutDown)
	return q, clock
}

// taken removes the keys from the queue and returns them.
func taken(q *Queue) (names []string) {
	for q.Len() > 0 {
		key, _ := q.Get()
		names = append(names, key.Name)
		q.Done(key)
	}
	return names
}

// TestObjectsWaitForOthers checks that an object is behind from the moment when it is enqueued until its evaluation is
// complete, and that its waiters are then enqueued.
func TestObjectsWaitForOthers(t *testing.T) {
	t.Parallel()
	q, _ := newTestQueue(t)
	pod := q.Waiter(Key{Namespace: "shop", Name: "pod"})
	var s Steps
	assert.Empty(t, s.Lags("ConfigMap", "a", pod, nil), "nothing is behind")
	s.Mark("a")
	turn := s.Begin("a")
	require.Equal(t, []Lag{{Kind: "ConfigMap", Name: "a"}}, s.Lags("ConfigMap", "a", pod, nil))
	s.Mark("a") // the object changes during the evaluation
	s.Settle("a", turn, "")
	require.Len(t, s.Lags("ConfigMap", "a", pod, nil), 1, "a change is lost")
	s.Settle("a", s.Begin("a"), "")
	assert.Empty(t, s.Lags("ConfigMap", "a", pod, nil))
	assert.Equal(t, []string{"pod"}, taken(q))
}

// TestObjectsDoNotWaitForAllForever checks that an object that waits for all objects of a kind continues when every
// object that is still behind has failed, and waits again when one of them changes.
func TestObjectsDoNotWaitForAllForever(t *testing.T) {
	t.Parallel()
	q, clock := newTestQueue(t)
	pod := q.Waiter(Key{Namespace: "shop", Name: "pod"})
	var s Steps
	s.Mark("a")
	require.Len(t, s.Lags("Service", "", pod, nil), 1)
	s.Fail("a", errors.New("moment"), false, clock.Now())
	assert.Empty(t, taken(q), "the error may be over soon")
	s.Fail("a", errors.New("quota"), true, clock.Now())
	assert.Equal(t, []string{"pod"}, taken(q))
	lags := s.Lags("Service", "", pod, nil)
	require.Len(t, lags, 1)
	assert.Equal(t, clock.Now(), lags[0].Failing)
	assert.Equal(t, "Service a (quota)", lags[0].String())
	s.Changed("a")
	assert.True(t, s.Lags("Service", "a", pod, nil)[0].Failing.IsZero(), "the new version has not failed yet")
	s.Await(pod)
	s.WakeAll()
	assert.Equal(t, []string{"pod"}, taken(q))
	assert.Contains(t, Lag{}.String(), "the election")
	assert.Contains(t, Lag{Kind: "Service"}.String(), "which are being read")
}

// TestWaitersAreWokenOnce checks that Wake enqueues each object in the set exactly once.
func TestWaitersAreWokenOnce(t *testing.T) {
	t.Parallel()
	q, _ := newTestQueue(t)
	var w Waiters
	w.Add(q.Waiter(Key{Name: "pod"}))
	w.Add(q.Waiter(Key{Name: "pod"}))
	w.Wake()
	assert.Equal(t, []string{"pod"}, taken(q))
	w.Wake()
	assert.Empty(t, taken(q))
}

// TestParkedObjectsWaitForTheProvider checks that parked objects are not enqueued before the provider is reachable, and
// that none of them gets lost.
func TestParkedObjectsWaitForTheProvider(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]func(*Queue){"it is back": (*Queue).Resume, "it was not away": (*Queue).Unpark} {
		q, clock := newTestQueue(t)
		q.Park(Key{Name: "a"})
		q.Park(Key{Name: "b"})
		clock.Step(time.Hour)
		require.Zero(t, q.Len(), name)
		release(q)
		require.Eventually(t, func() bool {
			clock.Step(time.Minute)
			return q.Len() == 2
		}, 10*time.Second, time.Millisecond, name)
	}
}

// TestTriesAreForgotten checks that Tries counts the failures of an object and of its plugins, and that Forget resets
// only the failures of its plugins, because the object may be created again.
func TestTriesAreForgotten(t *testing.T) {
	t.Parallel()
	q, _ := newTestQueue(t)
	key := Key{Name: "a"}
	q.Retries.Next(key, evaluation.Out)
	q.PluginRetries.Next(key, evaluation.Back)
	assert.Equal(t, 2, q.Tries(key))
	q.Forget(key)
	assert.Equal(t, 1, q.Tries(key), "the object may have come back")
	q.Retries.Succeeded(key, evaluation.Out)
	assert.Zero(t, q.Tries(key))
}

// TestAWriteThatMeetsNewsIsEvaluatedAgain checks that an object is not enqueued again after a write if no other client
// has changed it in the meantime.
func TestAWriteThatMeetsNewsIsEvaluatedAgain(t *testing.T) {
	t.Parallel()
	q, clock := newTestQueue(t)
	q.Writing(mutationcache.New(clock), Key{Name: "a"})()
	assert.Zero(t, q.Len())
}

// TestExclusionsAreRecorded checks that the reason why an object has no copy is known until the object is enqueued
// again and has a copy.
func TestExclusionsAreRecorded(t *testing.T) {
	t.Parallel()
	s := &Steps{}
	settle := func(exclusion string) { s.Settle("a", s.Begin("a"), exclusion) }
	assert.Empty(t, s.Exclusion("a"))
	s.Mark("a")
	settle("not today")
	assert.Equal(t, "not today", s.Exclusion("a"))
	s.Mark("a")
	assert.Empty(t, s.Exclusion("a"), "the object may have changed")
	settle("")
	assert.Empty(t, s.Exclusion("a"))
}
