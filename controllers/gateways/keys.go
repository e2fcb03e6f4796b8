// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"crypto/ecdh"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/api/wire"
)

// forgeKeys returns a Secret of a gateway with new keys: a private and a public key of 32 bytes each (Curve25519), in
// the format of Liqo.
func forgeKeys(g gateway, name string) (*corev1.Secret, error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("making a key, %w", err)
	}
	// WireGuard clamps private keys like this (RFC 7748, section 5).
	random[0] &= 248
	random[31] = random[31]&127 | 64
	private, err := ecdh.X25519().NewPrivateKey(random)
	if err != nil {
		return nil, fmt.Errorf("making a key, %w", err)
	}
	secret := &corev1.Secret{
		ObjectMeta: g.metadata(name),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{wire.PrivateKeyField: private.Bytes(), wire.PublicKeyField: private.PublicKey().Bytes()},
	}
	secret.Labels[wire.GatewayResourceLabel] = "true"
	return secret, nil
}
