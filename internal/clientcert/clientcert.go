// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package clientcert lets a cluster issue client certificates for consumers.
//
// A client that may approve certificate requests can impersonate any user. Therefore a request from another cluster is
// checked before it is approved: it must contain exactly the expected subject and no other names, and be signed with
// its own key.
package clientcert

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/progress"
)

// Lifetime is the requested lifetime of a certificate. A cluster may issue a shorter one.
const Lifetime = 365 * 24 * time.Hour

// requestType is the type of the PEM block of a request (RFC 7468, section 7).
const requestType = "CERTIFICATE REQUEST"

// leastRSABits is the minimum length of an RSA key in bits (NIST SP 800-57).
const leastRSABits = 2048

// Subject is the user and the group that an API server reads from a client certificate.
type Subject struct{ CommonName, Organization string }

// Consumer returns the subject of a consumer that was joined with refractctl peer. Both the user and the group are the
// consumer's cluster ID.
func Consumer(id string) Subject { return Subject{CommonName: id, Organization: id} }

func (s Subject) String() string { return fmt.Sprintf("CN=%s,O=%s", s.CommonName, s.Organization) }

// isName reports whether name consists of exactly the attributes of the subject.
func (s Subject) isName(name *pkix.Name) bool {
	return len(name.Names) == 2 && name.CommonName == s.CommonName && slices.Equal(name.Organization, []string{s.Organization})
}

// New returns a certificate request (PEM) for the subject, signed with key.
func New(subject Subject, key crypto.Signer) ([]byte, error) {
	name := pkix.Name{CommonName: subject.CommonName, Organization: []string{subject.Organization}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: name}, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate request, %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: requestType, Bytes: der}), nil
}

// Check returns the public key of a certificate request (PEM), or an error if the request is invalid. The request must
// be for the given key, unless key is nil.
func Check(request []byte, subject Subject, key crypto.PublicKey) (crypto.PublicKey, error) {
	block, rest := pem.Decode(request)
	if block == nil || block.Type != requestType || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, fmt.Errorf("it is not one PEM block of type %s", requestType)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("it is not signed with its own key: %w", err)
	}
	if !subject.isName(&csr.Subject) {
		return nil, fmt.Errorf("its subject is %q, not %q", csr.Subject.String(), subject)
	}
	if len(csr.DNSNames)+len(csr.EmailAddresses)+len(csr.IPAddresses)+len(csr.URIs) > 0 {
		return nil, errors.New("it asks for alternative names")
	}
	if err := checkStrength(csr.PublicKey); err != nil {
		return nil, err
	}
	if key != nil && !Same(csr.PublicKey, key) {
		return nil, errors.New("its key is not that of the Tenant")
	}
	return csr.PublicKey, nil
}

func checkStrength(key crypto.PublicKey) error {
	switch key := key.(type) {
	case ed25519.PublicKey, *ecdsa.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < leastRSABits {
			return fmt.Errorf("its RSA key has %d bits, at least %d are needed", bits, leastRSABits)
		}
		return nil
	}
	return fmt.Errorf("its key is a %T, use Ed25519, ECDSA or RSA", key)
}

// Same reports whether two public keys are equal.
func Same(a, b crypto.PublicKey) bool {
	comparable, ok := a.(interface {
		Equal(other crypto.PublicKey) bool
	})
	return ok && comparable.Equal(b)
}

// ValidityFor returns the validity of a certificate (PEM). The validity is zero unless the certificate is for the
// subject and the key. If key is nil, any key is accepted.
func ValidityFor(certificate []byte, subject Subject, key crypto.PublicKey) credentials.Validity {
	certificates, err := cert.ParseCertsPEM(certificate)
	if err != nil || !subject.isName(&certificates[0].Subject) || key != nil && !Same(certificates[0].PublicKey, key) {
		return credentials.Validity{}
	}
	return credentials.Validity{From: certificates[0].NotBefore, Until: certificates[0].NotAfter}
}

// Request is a certificate request with the data for its CertificateSigningRequest.
type Request struct {
	// PEM is the certificate request. It must have been created by this process or checked with Check.
	PEM []byte
	// GenerateName and Labels are set on the CertificateSigningRequest.
	GenerateName string
	Labels       map[string]string
	// Reason and Message are set in the condition that approves the request.
	Reason, Message string
	// Timeout limits the wait for the signer. The signer of Kubernetes needs less than a second.
	Timeout time.Duration
}

// ErrNotSigned is matched by errors of Sign if the request is denied, the signer fails, or the request is not signed in
// time. Use errors.Is.
var ErrNotSigned = errors.New("the certificate was not signed")

type notSigned string

func (n notSigned) Error() string { return string(n) }

// Is reports whether target is ErrNotSigned, for errors.Is.
func (notSigned) Is(target error) bool { return target == ErrNotSigned }

// Sign creates a CertificateSigningRequest, approves it, waits until it is signed, and deletes it. It returns the
// certificate (PEM). live must not be cached.
func Sign(ctx context.Context, c client.Client, live client.Reader, request Request) (certificate []byte, err error) {
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: request.GenerateName, Labels: request.Labels},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request.PEM, SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: ptr.To(int32(Lifetime.Seconds())),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if err := c.Create(ctx, csr); err != nil {
		return nil, fmt.Errorf("requesting a certificate, %w", err)
	}
	name := csr.Name
	defer func() {
		if deleted := client.IgnoreNotFound(c.Delete(context.WithoutCancel(ctx), csr)); deleted != nil {
			err = errors.Join(err, fmt.Errorf("deleting CertificateSigningRequest %s, %w", name, deleted))
		}
	}()
	if err := approveRequest(ctx, c, live, csr, request); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, request.Timeout)
	defer cancel()
	begun := time.Now()
	err = progress.Poll(bounded, func(context.Context) (bool, error) {
		// This request is not limited by the timeout. Otherwise, the end of the timeout could look like an unavailable
		// API server.
		if err := live.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return false, fmt.Errorf("getting CertificateSigningRequest %s, %w", name, err)
		}
		return len(csr.Status.Certificate) > 0, refusalOf(csr)
	})
	if errors.Is(err, context.DeadlineExceeded) && !cmdutil.Away(err) {
		return nil, notSigned(fmt.Sprintf("CertificateSigningRequest %s was not signed within %s: the cluster must sign client certificates (signer %s), which Amazon EKS does not",
			name, time.Since(begun).Round(time.Second), csr.Spec.SignerName))
	}
	return csr.Status.Certificate, err
}

// approveRequest approves a request, unless it is already approved. It returns an error if the request was denied.
func approveRequest(ctx context.Context, c client.Client, live client.Reader, csr *certificatesv1.CertificateSigningRequest, request Request) error {
	name := csr.Name
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved
		}) {
			return nil
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: request.Reason, Message: request.Message,
		})
		err := c.SubResource("approval").Update(ctx, csr)
		if !apierrors.IsConflict(err) {
			if err != nil {
				err = fmt.Errorf("approving CertificateSigningRequest %s, %w", name, err)
			}
			return err
		}
		// Another client may have approved the request at the same time.
		if err := live.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return fmt.Errorf("getting CertificateSigningRequest %s, %w", name, err)
		}
		if err := refusalOf(csr); err != nil {
			return err
		}
		return err
	})
}

// refusalOf returns an error if the request was denied or its signer has failed, and nil otherwise.
func refusalOf(csr *certificatesv1.CertificateSigningRequest) error {
	for _, condition := range csr.Status.Conditions {
		said := condition.Reason
		if condition.Message != "" {
			said += ": " + condition.Message
		}
		switch condition.Type {
		case certificatesv1.CertificateDenied:
			return notSigned(fmt.Sprintf("CertificateSigningRequest %s was denied (%s): configure the approver that denied it to admit requests for the signer %s", csr.Name, said, csr.Spec.SignerName))
		case certificatesv1.CertificateFailed:
			return notSigned(fmt.Sprintf("CertificateSigningRequest %s was approved, but its signer %s failed (%s): repair the signer", csr.Name, csr.Spec.SignerName, said))
		}
	}
	return nil
}
