// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package probation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/host"
)

// TestHeldRemovalsHaveOneMessage checks that every attempt to delete the same copy has the same message, so that only
// one Event is written.
func TestHeldRemovalsHaveOneMessage(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
	set := NewSet(clock)
	set.Replace([]*Probation{New(Options{Plugin: "p", Revision: "p-2", Until: clock.Now().Add(10 * time.Minute)})})
	try := func() error {
		return set.MayRemove(Object{Kind: "Pod", Name: "web"}, func(Runner) (*host.Outcome, error) { return &host.Outcome{}, nil })
	}
	first := try()
	require.ErrorContains(t, first, "until 2026-01-02T03:10:00Z")
	clock.Step(7 * time.Second)
	assert.EqualError(t, try(), first.Error())
	clock.Step(10 * time.Minute)
	assert.NoError(t, try())
}
