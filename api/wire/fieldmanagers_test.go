// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/api/wire"
)

// Every constant that is a field manager, or from which the API server derives one, is listed as one of Refract. Other
// field managers with similar names are not.
func TestFieldManagersAreListed(t *testing.T) {
	found := 0
	for name, value := range constants(t) {
		if strings.HasSuffix(name, "FieldManager") || strings.HasSuffix(name, "Process") {
			assert.True(t, wire.IsFieldManager(value), "%s = %q", name, value)
			found++
		}
	}
	assert.GreaterOrEqual(t, found, 15)
	assert.True(t, wire.IsFieldManager(wire.NodeFieldManager("milan")))
	for _, other := range []string{"", "kubectl-edit", "virtual-kubelet", "kube-controller-manager", "refractctl", "refract"} {
		assert.False(t, wire.IsFieldManager(other), other)
	}
}

// The API server refuses longer names of field managers. Two virtual nodes never have the same one.
func TestFieldManagersOfNodesAreShort(t *testing.T) {
	names := map[string]bool{}
	for _, node := range []string{"milan", strings.Repeat("m", 112), strings.Repeat("m", 113), strings.Repeat("m", 253), strings.Repeat("m", 252) + "n"} {
		name := wire.NodeFieldManager(node)
		assert.LessOrEqual(t, len(name), 128)
		assert.True(t, wire.IsFieldManager(name), name)
		names[name] = true
	}
	assert.Len(t, names, 5)
	assert.True(t, names["virtual-kubelet-milan"])
}
