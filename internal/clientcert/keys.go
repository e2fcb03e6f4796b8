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
	"fmt"
	"slices"
	"strings"
)

// Keys are fingerprints of the keys whose holder may ask for the next certificate: the one that has asked last, and after it those that
// certificates were signed for since. An answer may be lost, so the former stays until one of the latter asks.
type Keys []string

// mostKeys bounds how many there are. More answers than that are not lost one after the other.
const mostKeys = 6

// ParseKeys returns those that Keys.String has written. What is no fingerprint is kept, and matches no key.
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

// Has reports whether the key is one of them.
func (k Keys) Has(key crypto.PublicKey) bool {
	fingerprint, err := Fingerprint(key)
	return err == nil && slices.Contains(k, fingerprint)
}

// After returns the keys after a certificate was signed for next, which one of them, present, has asked for.
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

// Fingerprint returns the SHA-256 of a public key in PKIX, in hexadecimal, with its name before it.
func Fingerprint(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a public key, %w", err)
	}
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// EncodeKey returns a public key in PKIX, in PEM.
func EncodeKey(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a public key, %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// purpose begins what is signed to prove that a request may be answered, so that the signature proves nothing else.
const purpose = "refract.io: the next client certificate\n"

// Prove returns the signature of a request in PEM with the key of the present certificate.
func Prove(request []byte, key crypto.Signer) ([]byte, error) {
	message, hash := append([]byte(purpose), request...), crypto.Hash(0)
	if _, is := key.Public().(ed25519.PublicKey); !is {
		sum := sha256.Sum256(message)
		message, hash = sum[:], crypto.SHA256
	}
	signature, err := key.Sign(rand.Reader, message, hash)
	if err != nil {
		return nil, fmt.Errorf("signing the request with the present key, %w", err)
	}
	return signature, nil
}

// Proves reports whether Prove has made the signature, with that key.
func Proves(request, signature []byte, key crypto.PublicKey) bool {
	return Verify(key, append([]byte(purpose), request...), signature)
}

// Verify reports whether signature is that of the message: as it is with Ed25519, and of its SHA-256 with RSA (PKCS #1 v1.5) and ECDSA (ASN.1).
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
