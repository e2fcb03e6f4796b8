// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
	"k8s.io/utils/clock"
)

// CertificateSource returns the certificate for a handshake. It is safe for
// concurrent use and does not block.
type CertificateSource func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// errNoCertificate is returned until the first certificate has been signed.
var errNoCertificate = errors.New("no signed serving certificate yet: its CertificateSigningRequest waits for approval (kubectl get csr; kubectl certificate approve)")

const (
	// selfSignedLifetime is the validity of self-signed certificates, which clients do not verify.
	selfSignedLifetime = 365 * 24 * time.Hour
	// selfSignedRenewalPeriod is the remaining validity at which a self-signed certificate is replaced.
	selfSignedRenewalPeriod = 24 * time.Hour
	// clockSkew is how far the clock of a client may be behind the clock of this process.
	clockSkew = time.Minute
)

// CertificateFromFiles returns the certificate in a pair of PEM files. It reloads the files until ctx is done.
func CertificateFromFiles(ctx context.Context, certFile, keyFile string) (CertificateSource, error) {
	content, err := dynamiccertificates.NewDynamicServingContentFromFiles("kubelet-serving", certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("loading the serving certificate %s with key %s, %w", certFile, keyFile, err)
	}
	go content.Run(ctx, 1)
	return parsedOnChange(content.CurrentCertKeyContent), nil
}

// parsedOnChange returns a source that parses the pair of certificate and key again only after its bytes have
// changed.
func parsedOnChange(current func() (certPEM, keyPEM []byte)) CertificateSource {
	var (
		mu     sync.Mutex
		last   [2]string
		parsed *tls.Certificate
	)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		certPEM, keyPEM := current()
		mu.Lock()
		defer mu.Unlock()
		if now := [2]string{string(certPEM), string(keyPEM)}; parsed == nil || now != last {
			pair, err := tls.X509KeyPair(certPEM, keyPEM)
			if err != nil {
				return nil, fmt.Errorf("parsing the serving certificate, %w", err)
			}
			last, parsed = now, &pair
		}
		return parsed, nil
	}
}

// CertificateFromSigner requests a certificate from the cluster with a CertificateSigningRequest and stores the
// certificate in dir. It renews the certificate before the expiry, until ctx is done. signer is
// certificatesv1.KubeletServingSignerName or the signer of a cloud.
func CertificateFromSigner(ctx context.Context, client kubernetes.Interface, signer, nodeName, dir string, ip net.IP) (CertificateSource, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of serving certificates, %w", err)
	}
	store, err := certificate.NewFileStore("virtual-kubelet", dir, dir, "", "")
	if err != nil {
		return nil, fmt.Errorf("opening the folder of serving certificates %s, %w", dir, err)
	}
	manager, err := certificate.NewManager(&certificate.Config{
		ClientsetFn:      func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil },
		SignerName:       signer,
		GetUsages:        certificate.DefaultKubeletServingGetUsages,
		CertificateStore: store,
		GetTemplate: func() *x509.CertificateRequest {
			return &x509.CertificateRequest{
				Subject:     pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}},
				IPAddresses: []net.IP{ip},
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the request for a serving certificate from %s, %w", signer, err)
	}
	manager.Start()
	context.AfterFunc(ctx, manager.Stop)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if current := manager.Current(); current != nil {
			return current, nil
		}
		return nil, errNoCertificate
	}, nil
}

// Either returns certificates from the first source. As long as the first source has none, it returns certificates from
// the second source.
func Either(first, second CertificateSource) CertificateSource {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if found, err := first(hello); err == nil {
			return found, nil
		}
		return second(hello)
	}
}

// SelfSigned is the certificate type of self-signed certificates, which need no signer.
const SelfSigned = "self-signed"

// SignerOf returns the signer for a value of --certificate-type, and reports whether there is one. There is no signer
// for the type self-signed and for unknown values.
func SignerOf(certificateType string) (string, bool) {
	switch certificateType {
	case "kubelet":
		return certificatesv1.KubeletServingSignerName, true
	case "aws":
		return "beta.eks.amazonaws.com/app-serving", true
	default:
		return "", false
	}
}

// SelfSignedCertificate creates certificates that are valid for a year. Each certificate is replaced on its last day.
func SelfSignedCertificate(nodeName string, ip net.IP, clk clock.PassiveClock) CertificateSource {
	var (
		mu      sync.Mutex
		current *tls.Certificate
	)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if current == nil || clk.Now().After(current.Leaf.NotAfter.Add(-selfSignedRenewalPeriod)) {
			made, err := selfSign(nodeName, ip, clk.Now())
			if err != nil {
				return nil, fmt.Errorf("making a self-signed serving certificate, %w", err)
			}
			current = made
		}
		return current, nil
	}
}

func selfSign(nodeName string, ip net.IP, now time.Time) (*tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"liqo.io"}},
		IPAddresses:  []net.IP{ip},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(selfSignedLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}, nil
}
