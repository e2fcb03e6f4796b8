// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

// Key is a public key.
type Key struct {
	public      crypto.PublicKey
	fingerprint string
}

// minRSABits is the minimum size of an RSA key in bits.
const minRSABits = 2048

// ParseKey parses a public key in PEM (PUBLIC KEY), the format of cosign.pub.
func ParseKey(text string) (Key, error) {
	block, rest := pem.Decode([]byte(text))
	switch {
	case block == nil:
		return Key{}, errors.New("it is not in PEM")
	case block.Type != "PUBLIC KEY":
		return Key{}, fmt.Errorf("it is a %s, use a PUBLIC KEY", block.Type)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return Key{}, errors.New("it has more than one PEM block, list each key alone")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, err
	}
	switch k := public.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return Key{}, fmt.Errorf("it has %d bits, use at least %d", k.N.BitLen(), minRSABits)
		}
	default:
		return Key{}, fmt.Errorf("keys of type %T are not supported, use ECDSA, Ed25519 or RSA", public)
	}
	sum := sha256.Sum256(block.Bytes)
	return Key{public: public, fingerprint: "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// Fingerprint returns the sha256 of the key in DER.
func (k Key) Fingerprint() string { return k.fingerprint }

// verifies reports whether signature is a signature of the message by this key.
func (k Key) verifies(message, signature []byte) bool {
	sum := sha256.Sum256(message)
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		if ecdsa.VerifyASN1(public, sum[:], signature) {
			return true
		}
		// cosign 3 uses the hash function that matches the size of the curve.
		sum384, sum512 := sha512.Sum384(message), sha512.Sum512(message)
		return ecdsa.VerifyASN1(public, sum384[:], signature) || ecdsa.VerifyASN1(public, sum512[:], signature)
	case ed25519.PublicKey:
		return ed25519.Verify(public, message, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], signature) == nil
	}
	return false
}
