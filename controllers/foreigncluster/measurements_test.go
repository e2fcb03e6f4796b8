// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestMeasurementsAreDatedByTheReader checks that the age of a measurement is determined by the clock of the reader, as
// long as the reader can read measurements.
func TestMeasurementsAreDatedByTheReader(t *testing.T) {
	t.Parallel()
	m := measurements{seen: map[string]map[string]measurement{}}
	now := time.Now()
	read := func(after time.Duration, object, value string, wasStale bool) bool {
		now = now.Add(after)
		return m.isStale("rome", object, value, wasStale, now)
	}
	assert.False(t, read(0, "a", "2020-01-01T00:00:00Z", false), "the clock of the gateway may be wrong")
	for range 6 {
		assert.False(t, read(refreshInterval, "a", "2020-01-01T00:00:00Z", false))
	}
	assert.True(t, read(refreshInterval, "a", "2020-01-01T00:00:00Z", false), "nobody has refreshed it")
	assert.False(t, read(0, "b", "2020-01-01T00:00:00Z", false), "another object")
	assert.True(t, read(time.Hour, "a", "2020-01-01T00:00:00Z", false), "it does not become new because nobody has read it")
	assert.False(t, read(0, "a", "2020-01-01T00:00:10Z", false), "refreshed")
	assert.False(t, read(time.Hour, "a", "2020-01-01T00:00:10Z", false), "nobody could write for an hour")
	for range 6 {
		assert.False(t, read(refreshInterval, "a", "2020-01-01T00:00:10Z", false))
	}
	assert.True(t, read(refreshInterval, "a", "2020-01-01T00:00:10Z", false))

	m.dropCluster("rome")
	assert.True(t, read(0, "a", "2020-01-01T00:00:10Z", true), "an earlier process has found it stale")
	assert.True(t, read(refreshInterval, "a", "2020-01-01T00:00:10Z", false))
	assert.False(t, read(0, "a", "2020-01-01T00:00:20Z", true))
}
