// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/api/wire"
)

// TestFieldManagersAreListed checks that IsFieldManager returns true for every constant that is a field manager, or
// from which the API server derives a field manager, and false for other field managers with similar names.
func TestFieldManagersAreListed(t *testing.T) {
	found := 0
	for name, value := range constants(t) {
		if strings.HasSuffix(name, "FieldManager") || strings.HasSuffix(name, "Process") {
			assert.True(t, wire.IsFieldManager(value), "%s = %q", name, value)
			found++
		}
	}
	assert.GreaterOrEqual(t, found, 15)
	assert.True(t, wire.IsFieldManager(wire.NodeFieldManagerPrefix+"milan"))
	for _, other := range []string{"", "kubectl-edit", "virtual-kubelet", "kube-controller-manager", "refractctl", "refract"} {
		assert.False(t, wire.IsFieldManager(other), other)
	}
}
