// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/netlab"
)

// TestKeyRotation replaces the keys of a client and of a server while pods exchange packets, twice, and once while the other pod of the
// gateway takes over. The test writes the keys and the status, as the controller manager does (see controllers/gateways).
func TestKeyRotation(t *testing.T) {
	netlab.Need(t)
	rome, milan, pods := newElectingSites(t)
	listen(t, milan.pod)
	for _, s := range []*site{rome, milan} {
		pods[s].awaitRoles()
	}
	echoes := startEchoes(t, rome.pod, milan.pod, "10.61.1.10")
	echoes.await(t)
	connection, _ := dial(t, rome.pod, "10.61.1.10:8080")

	peers := map[*site]*site{rome: milan, milan: rome}
	for _, s := range []*site{rome, milan} {
		t.Run("keys of "+s.name, func(t *testing.T) {
			first := s.rotate(t, peers[s], s.keysDir, s.alternateKeysDir, func() {})
			require.NotEqual(t, s.key, first)
			t.Logf("longest gap %s", echoes.longestGap())
			exchange(t, connection)
			s.rotate(t, peers[s], s.alternateKeysDir, s.keysDir, func() {
				active, standby := pods[s].awaitRoles()
				active.kill()
				await(t, func() error { return expect(standby.metric("refract_gateway_active"), 1.0) })
				active.start()
				pods[s].awaitRoles()
			})
			t.Logf("longest gap with a takeover %s", echoes.longestGap())
			exchange(t, connection)
		})
	}
	for _, s := range []*site{rome, milan} {
		for _, c := range pods[s].commands {
			require.NotContains(t, c.log.String(), "forbidden", "%s", c)
		}
	}
}

// rotate replaces the key in the folder used with one in the folder unused, and waits until the peer records it as the key in use.
// meanwhile runs after the gateway has changed to the new key. It returns the new key.
func (s *site) rotate(t *testing.T, peer *site, used, unused string, meanwhile func()) wgtypes.Key {
	t.Helper()
	next, err := wgtypes.GeneratePrivateKey()
	require.NoError(t, err)
	public, before := next.PublicKey(), peer.readPublicKey(t).Spec.PublicKey
	require.NoError(t, os.WriteFile(filepath.Join(unused, wire.PrivateKeyField), next[:], 0o400))
	await(t, func() error {
		accepted := networking.ParseKeys(s.readPublicKey(t).Annotations[wire.AcceptedKeysAnnotation])
		if !slices.ContainsFunc(accepted, func(key []byte) bool { return bytes.Equal(key, public[:]) }) {
			return fmt.Errorf("%s does not accept the new key of %s", peer.name, s.name)
		}
		return nil
	})
	require.Equal(t, before, peer.readPublicKey(t).Spec.PublicKey)
	secrets := map[string]string{s.keysDir: wire.GatewayObjectName(gatewayName), s.alternateKeysDir: wire.AlternateKeysName(gatewayName)}
	s.useKeys(t, secrets[unused])
	await(t, func() error {
		return expect(wgtypes.Key(peer.readPublicKey(t).Spec.PublicKey), public)
	})
	meanwhile()
	require.Contains(t, peer.readPublicKey(t).Annotations, wire.OtherPublicKeyAnnotation, "the replaced key is accepted for a while")
	require.NoError(t, os.Remove(filepath.Join(used, wire.PrivateKeyField)))
	return next
}

// readPublicKey returns the PublicKey of the peer.
func (s *site) readPublicKey(t *testing.T) *networking.PublicKey {
	t.Helper()
	key := &networking.PublicKey{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: s.tenant, Name: s.other()}, key))
	return key
}

// useKeys writes the Secret with the keys in use to the status of the gateway.
func (s *site) useKeys(t *testing.T, secret string) {
	t.Helper()
	reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: s.tenant, Name: secret}
	key := client.ObjectKey{Namespace: s.tenant, Name: gatewayName}
	if s.name == "milan" {
		server := &networking.GatewayServer{}
		require.NoError(t, s.client.Get(t.Context(), key, server))
		before := server.DeepCopy()
		server.Status.SecretRef = reference
		require.NoError(t, s.client.Status().Patch(t.Context(), server, client.MergeFrom(before)))
		return
	}
	gatewayClient := &networking.GatewayClient{}
	require.NoError(t, s.client.Get(t.Context(), key, gatewayClient))
	before := gatewayClient.DeepCopy()
	gatewayClient.Status.SecretRef = reference
	require.NoError(t, s.client.Status().Patch(t.Context(), gatewayClient, client.MergeFrom(before)))
}
