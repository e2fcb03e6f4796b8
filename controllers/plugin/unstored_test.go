// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/internal/pluginsource"
)

// Modules that cannot be stored do not fill the memory: the oldest ones are dropped.
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
