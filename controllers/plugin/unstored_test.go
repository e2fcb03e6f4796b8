// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/internal/pluginsource"
)

// TestUnstoredModulesAreLimited checks that the oldest of the modules that cannot be stored are dropped, so that these
// modules do not fill the memory.
func TestUnstoredModulesAreLimited(t *testing.T) {
	var kept unstoredModules
	large := make([]byte, pluginsource.MaxModuleBytes)
	for _, plugin := range []string{"a", "b", "a", "c"} {
		kept.keep(plugin, &module{digest: "of " + plugin, wasm: large})
	}
	assert.Nil(t, kept.find("b", "of b"), "the oldest")
	assert.NotNil(t, kept.find("a", "of a"))
	assert.NotNil(t, kept.find("c", "of c"))
	assert.Nil(t, kept.find("c", "of another"))
	kept.drop("a")
	assert.Nil(t, kept.find("a", "of a"))
	assert.NotNil(t, kept.find("c", "of c"))
}

// TestRetryDelays checks that the delay after failed fetches doubles up to its maximum.
func TestRetryDelays(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int32]time.Duration{
		0: 10 * time.Second, 1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 6: 320 * time.Second,
		7: 10 * time.Minute, 8: 10 * time.Minute, math.MaxInt32: 10 * time.Minute,
	} {
		assert.Equal(t, want, retryDelay(failures), "after %d failures", failures)
	}
}
