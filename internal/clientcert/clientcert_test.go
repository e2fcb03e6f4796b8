// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package clientcert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var rome = Subject{CommonName: "rome", Organization: "liqo.io"}

func keys(t *testing.T) map[string]crypto.Signer {
	t.Helper()
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	elliptic, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	rivest, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return map[string]crypto.Signer{"Ed25519": edwards, "ECDSA": elliptic, "RSA": rivest}
}

func TestCheckAcceptsWhatIsExpected(t *testing.T) {
	for name, key := range keys(t) {
		request, err := New(rome, key)
		require.NoError(t, err, name)
		found, err := Check(request, rome, key.Public())
		require.NoError(t, err, name)
		assert.True(t, Same(found, key.Public()), name)
		_, err = Check(request, rome, nil)
		assert.NoError(t, err, "%s: any key", name)
	}
}

// TestCheckRefusesWhatIsNot checks that Check refuses requests that a cluster would sign if they were approved.
func TestCheckRefusesWhatIsNot(t *testing.T) {
	all := keys(t)
	key := all["ECDSA"]
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil { // the standard library may refuse to create the request
		weak = nil
	}
	name := func(change func(*pkix.Name)) *x509.CertificateRequest {
		subject := pkix.Name{CommonName: "rome", Organization: []string{"liqo.io"}}
		change(&subject)
		return &x509.CertificateRequest{Subject: subject}
	}
	with := func(change func(*x509.CertificateRequest)) *x509.CertificateRequest {
		template := name(func(*pkix.Name) {})
		change(template)
		return template
	}
	for what, c := range map[string]struct {
		template *x509.CertificateRequest
		signer   crypto.Signer
		refusal  string
	}{
		"another user":   {name(func(n *pkix.Name) { n.CommonName = "kubernetes-admin" }), key, "its subject is"},
		"another group":  {name(func(n *pkix.Name) { n.Organization = []string{"system:masters"} }), key, "its subject is"},
		"one group more": {name(func(n *pkix.Name) { n.Organization = append(n.Organization, "system:masters") }), key, "its subject is"},
		"no group":       {name(func(n *pkix.Name) { n.Organization = nil }), key, "its subject is"},
		"a unit":         {name(func(n *pkix.Name) { n.OrganizationalUnit = []string{"admins"} }), key, "its subject is"},
		"a name twice": {name(func(n *pkix.Name) {
			n.ExtraNames = []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "admin"}}
		}), key, "its subject is"},
		"a DNS name":       {with(func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes.default"} }), key, "alternative names"},
		"an address":       {with(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }), key, "alternative names"},
		"a mail address":   {with(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }), key, "alternative names"},
		"a URI":            {with(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "a"}} }), key, "alternative names"},
		"somebody's key":   {name(func(*pkix.Name) {}), all["Ed25519"], "is not that of the Tenant"},
		"an RSA key, weak": {name(func(*pkix.Name) {}), weak, "has 1024 bits"},
	} {
		if signer, ok := c.signer.(*rsa.PrivateKey); ok && signer == nil {
			continue
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, c.template, c.signer)
		require.NoError(t, err, what)
		_, err = Check(pem.EncodeToMemory(&pem.Block{Type: requestType, Bytes: der}), rome, key.Public())
		assert.ErrorContains(t, err, c.refusal, what)
	}
	good, err := New(rome, key)
	require.NoError(t, err)
	block, _ := pem.Decode(good)
	forged := append([]byte(nil), block.Bytes...)
	forged[len(forged)-1] ^= 1
	for what, request := range map[string][]byte{
		"nothing": nil, "no PEM": block.Bytes, "another block": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}),
		"two of them": append(append([]byte(nil), good...), good...), "a forged signature": pem.EncodeToMemory(&pem.Block{Type: requestType, Bytes: forged}),
		"half of it": pem.EncodeToMemory(&pem.Block{Type: requestType, Bytes: block.Bytes[:len(block.Bytes)/2]}),
	} {
		_, err := Check(request, rome, key.Public())
		assert.Error(t, err, what)
	}
}

func TestValidityFor(t *testing.T) {
	all := keys(t)
	key, from := all["Ed25519"], time.Now().Truncate(time.Second)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: from.Add(time.Hour), Subject: pkix.Name{CommonName: "rome", Organization: []string{"liqo.io"}}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), all["ECDSA"])
	require.NoError(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})

	validity := ValidityFor(certificate, rome, key.Public())
	assert.True(t, validity.Until.Equal(from.Add(time.Hour)))
	assert.Equal(t, time.Hour, validity.Life())
	assert.True(t, ValidityFor(certificate, rome, nil).Known())
	assert.False(t, ValidityFor(certificate, rome, all["ECDSA"].Public()).Known(), "another key")
	assert.False(t, ValidityFor(certificate, Subject{"milan", "liqo.io"}, nil).Known(), "another subject")
	assert.False(t, ValidityFor([]byte("?"), rome, nil).Known(), "no certificate")
}

// FuzzCheck searches for a request that Check accepts although its subject has another organization.
func FuzzCheck(f *testing.F) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(f, err)
	request, err := New(rome, key)
	require.NoError(f, err)
	f.Add(request)
	f.Fuzz(func(t *testing.T, request []byte) {
		if _, err := Check(request, rome, nil); err != nil {
			return
		}
		block, _ := pem.Decode(request)
		csr, err := x509.ParseCertificateRequest(block.Bytes)
		require.NoError(t, err)
		assert.Equal(t, []string{"liqo.io"}, csr.Subject.Organization)
	})
}
