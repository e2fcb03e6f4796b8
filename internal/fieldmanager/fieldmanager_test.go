// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fieldmanager

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/api/wire"
)

// TestFieldManagersOfNodesAreShort checks that names are not longer than the API server accepts, and that different
// virtual nodes have different names.
func TestFieldManagersOfNodesAreShort(t *testing.T) {
	names := map[string]bool{}
	for _, node := range []string{"milan", strings.Repeat("m", 112), strings.Repeat("m", 113), strings.Repeat("m", 253), strings.Repeat("m", 252) + "n"} {
		name := OfNode(node)
		assert.LessOrEqual(t, len(name), 128)
		assert.True(t, wire.IsFieldManager(name), name)
		names[name] = true
	}
	assert.Len(t, names, 5)
	assert.True(t, names["virtual-kubelet-milan"])
}
