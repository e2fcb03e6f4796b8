// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"testing"

	"github.com/stretchr/testify/require"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// TestKeysOfUsersAreNotReplaced checks that a Secret that the spec names is not deleted, because nobody would make it again.
func TestKeysOfUsersAreNotReplaced(t *testing.T) {
	t.Parallel()
	side := &cluster.Side{Cluster: &cluster.Cluster{Name: "rome"}}
	server, gatewayClient := &api.GatewayServer{}, &api.GatewayClient{}
	for _, e := range []*end{{Side: side, peer: "milan", server: server}, {Side: side, peer: "milan", client: gatewayClient}} {
		require.NoError(t, e.checkKeys())
	}
	server.Spec.SecretRef.Name, gatewayClient.Spec.SecretRef.Name = "mine", "mine"
	for _, e := range []*end{{Side: side, peer: "milan", server: server}, {Side: side, peer: "milan", client: gatewayClient}} {
		require.ErrorContains(t, e.checkKeys(), "Secret liqo-tenant-milan/mine")
	}
}

// TestAllKeysAreReplaced checks that no Secret with keys remains: neither the one in use, which Liqo may have named, nor the one that
// contains replaced or next keys.
func TestAllKeysAreReplaced(t *testing.T) {
	t.Parallel()
	server := &api.GatewayServer{}
	server.Name = "milan"
	e := &end{server: server}
	require.Equal(t, []string{"gw-milan", "gw-milan-alternate"}, e.secretNames("gw-milan-alternate"))
	require.Equal(t, []string{"gw-milan", "gw-milan-alternate", "keys-of-liqo"}, e.secretNames("keys-of-liqo"))
}
