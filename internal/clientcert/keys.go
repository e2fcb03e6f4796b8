// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package clientcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Keys contains the fingerprints of the keys whose holders may request the next certificate. The first key made the
// last request. The other keys belong to the certificates that were issued since then. Because a response may be lost,
// the first key remains valid until a request is made with one of the later keys.
type Keys []string

// mostKeys is the maximum number of keys. It is unlikely that more responses in a row get lost.
const mostKeys = 6

// ParseKeys parses the result of Keys.String. An invalid fingerprint is kept, but matches no key.
func ParseKeys(text string) Keys {
	var keys Keys
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			keys = append(keys, entry)
		}
	}
	return keys
}

func (k Keys) String() string { return strings.Join(k, ",") }

// Has reports whether the list contains the fingerprint of key.
func (k Keys) Has(key crypto.PublicKey) bool {
	fingerprint, err := Fingerprint(key)
	return err == nil && slices.Contains(k, fingerprint)
}

// After returns the keys that are valid after a request with the key present, for which a certificate with the key next
// was issued.
func (k Keys) After(present, next crypto.PublicKey) (Keys, error) {
	asked, err := Fingerprint(present)
	if err != nil {
		return nil, err
	}
	given, err := Fingerprint(next)
	if err != nil {
		return nil, err
	}
	if len(k) == 0 || k[0] != asked {
		k = Keys{asked}
	}
	if slices.Contains(k, given) {
		return k, nil
	}
	if k = append(slices.Clone(k), given); len(k) > mostKeys {
		k = slices.Delete(k, 1, 2)
	}
	return k, nil
}

// Fingerprint returns the hexadecimal SHA-256 hash of a public key in PKIX form, prefixed by the name of the hash
// function.
func Fingerprint(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a public key, %w", err)
	}
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// EncodeKey returns a public key in PKIX form as PEM.
func EncodeKey(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a public key, %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// EncodePrivateKey returns a private key in PKCS #8 form as PEM.
func EncodePrivateKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key, %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParsePrivateKey parses a private key in PKCS #8 form as PEM.
func ParsePrivateKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("it is a %T, which cannot sign", key)
	}
	return signer, checkStrength(signer.Public())
}

// purpose is the prefix of the signed message. It prevents the signature from being used for anything else.
const purpose = "refract.io: the next client certificate\n"

// Prove signs a certificate request (PEM) with the key of the current certificate, and returns the signature.
func Prove(request []byte, key crypto.Signer) ([]byte, error) {
	return SignMessage(append([]byte(purpose), request...), key)
}

// SignMessage returns the signature of a message in the form that Verify checks.
func SignMessage(message []byte, key crypto.Signer) ([]byte, error) {
	hash := crypto.Hash(0)
	if _, is := key.Public().(ed25519.PublicKey); !is {
		sum := sha256.Sum256(message)
		message, hash = sum[:], crypto.SHA256
	}
	signature, err := key.Sign(rand.Reader, message, hash)
	if err != nil {
		return nil, fmt.Errorf("signing with a key of this cluster, %w", err)
	}
	return signature, nil
}

// Proves reports whether signature was made by Prove with this key.
func Proves(request, signature []byte, key crypto.PublicKey) bool {
	return Verify(key, append([]byte(purpose), request...), signature)
}

// Verify reports whether the signature of the message is valid. Ed25519 signs the message itself. RSA (PKCS #1 v1.5)
// and ECDSA (ASN.1) sign the SHA-256 hash of the message.
func Verify(key crypto.PublicKey, message, signature []byte) bool {
	sum := sha256.Sum256(message)
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, message, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, sum[:], signature)
	}
	return false
}
