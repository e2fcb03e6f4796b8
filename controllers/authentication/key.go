// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// parseKey parses the public key of a consumer. The format is PKIX in PEM. Before Liqo 1.0.2, the key was the raw bytes
// of an Ed25519 key.
func parseKey(data []byte) (crypto.PublicKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		if len(data) == ed25519.PublicKeySize {
			return ed25519.PublicKey(data), nil
		}
		return nil, fmt.Errorf("it is neither PEM nor an Ed25519 key of %d bytes", ed25519.PublicKeySize)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	switch key.(type) {
	case ed25519.PublicKey, *rsa.PublicKey, *ecdsa.PublicKey:
		return key, nil
	}
	return nil, fmt.Errorf("it is a %T, use Ed25519, ECDSA or RSA", key)
}
