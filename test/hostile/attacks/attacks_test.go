// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/test/support/permissions"
)

// TestEveryKindIsAttacked checks that there is an attack for each kind that a role allows a consumer to write.
func TestEveryKindIsAttacked(t *testing.T) {
	attacked := map[schema.GroupResource]bool{}
	for _, attack := range OfConsumer() {
		_, err := attack.Object("rome", "shop-rome")
		require.NoError(t, err)
		attacked[attack.Resource.GroupResource()] = true
	}
	assert.Equal(t, permissions.KindsOfConsumers(), attacked)
}
