// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pki issues the certificates of test clusters.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifetime is the lifetime of all certificates. It is longer than any test or demo takes.
const lifetime = 365 * 24 * time.Hour

// Authority is a certificate authority. It is safe for concurrent use.
type Authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	CertPEM []byte
	KeyPEM  []byte
}

// Subject identifies the holder of a certificate. For Kubernetes, the name is the user and the organizations are the
// groups.
type Subject struct {
	Name string
	Orgs []string
	IPs  []net.IP
	DNS  []string
}

// NewAuthority returns a new authority with its own key.
func NewAuthority(name string) (*Authority, error) {
	template := newTemplate(Subject{Name: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	key, keyPEM, err := NewKey()
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("creating the authority %s, %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("creating the authority %s, %w", name, err)
	}
	return &Authority{cert: cert, key: key, CertPEM: encode("CERTIFICATE", der), KeyPEM: keyPEM}, nil
}

// Issue returns a certificate that can be used by clients and servers, and its key.
func (a *Authority) Issue(s Subject) (certPEM, keyPEM []byte, err error) {
	template := newTemplate(s)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	key, keyPEM, err := NewKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("issuing a certificate for %s, %w", s.Name, err)
	}
	return encode("CERTIFICATE", der), keyPEM, nil
}

func newTemplate(s Subject) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(randomBytes(16)),
		Subject:      pkix.Name{CommonName: s.Name, Organization: s.Orgs},
		NotBefore:    now.Add(-5 * time.Minute),
		NotAfter:     now.Add(lifetime),
		IPAddresses:  s.IPs,
		DNSNames:     s.DNS,
	}
}

// NewKey returns a new key, and its encoding as PEM.
func NewKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key, %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key, %w", err)
	}
	return key, encode("EC PRIVATE KEY", der), nil
}

// EncodePublic returns the public key in the format in which the API server reads keys of service accounts.
func EncodePublic(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding a public key, %w", err)
	}
	return encode("PUBLIC KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// randomBytes returns n random bytes. It cannot fail, because crypto/rand ends the program instead of returning an
// error.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}
