// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
)

// certificateLife is asked for; a cluster may sign for less.
const certificateLife = 365 * 24 * time.Hour

// certificate has the provider sign one. The private key leaves this process only in the Secret of the consumer.
func (o *Options) certificate(ctx context.Context) (*clientcmdapi.AuthInfo, time.Time, error) {
	var none time.Time
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, none, fmt.Errorf("generating a key, %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, none, fmt.Errorf("encoding the key, %w", err)
	}
	id := o.Consumer.ID()
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user(id), Organization: []string{id}}}, key)
	if err != nil {
		return nil, none, fmt.Errorf("making a certificate request, %w", err)
	}
	signed, err := o.sign(ctx, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
	if err != nil {
		return nil, none, err
	}
	certificates, err := cert.ParseCertsPEM(signed)
	if err != nil {
		return nil, none, fmt.Errorf("the signed certificate cannot be read, %w", err)
	}
	return &clientcmdapi.AuthInfo{ClientCertificateData: signed, ClientKeyData: keyPEM}, certificates[0].NotAfter, nil
}

// certified reports whether a certificate is for this consumer.
func (o *Options) certified(data []byte) bool {
	certificates, err := cert.ParseCertsPEM(data)
	if err != nil {
		return false
	}
	subject := certificates[0].Subject
	return subject.CommonName == user(o.Consumer.ID()) && slices.Equal(subject.Organization, []string{o.Consumer.ID()})
}

// signTimeout is how long a signer may take; that of Kubernetes takes less than a second.
const signTimeout = 30 * time.Second

// sign has a certificate request approved and signed, and deletes it.
func (o *Options) sign(ctx context.Context, request []byte) (certificate []byte, err error) {
	requests := o.Provider.Clientset.CertificatesV1().CertificateSigningRequests()
	object := meta("", "", map[string]string{wire.RemoteClusterIDLabel: o.Consumer.ID()})
	object.GenerateName = "refract-" + o.Consumer.ID() + "-"
	csr, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: object, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: ptr.To(int32(certificateLife.Seconds())),
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a certificate, %w", err)
	}
	name := csr.Name
	defer func() {
		if deleted := requests.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); deleted != nil && !apierrors.IsNotFound(deleted) {
			err = errors.Join(err, fmt.Errorf("deleting CertificateSigningRequest %s, %w", name, deleted))
		}
	}()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "RefractPeering",
		Message: "Approved with refractctl peer",
	})
	if _, err := requests.UpdateApproval(ctx, name, csr, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("approving CertificateSigningRequest %s, %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	err = progress.Poll(ctx, func(ctx context.Context) (bool, error) {
		csr, err := requests.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("getting CertificateSigningRequest %s, %w", name, err)
		}
		for _, condition := range csr.Status.Conditions {
			if condition.Type == certificatesv1.CertificateDenied || condition.Type == certificatesv1.CertificateFailed {
				return false, fmt.Errorf("CertificateSigningRequest %s is %s: %s, %s", name, condition.Type, condition.Reason, condition.Message)
			}
		}
		certificate = csr.Status.Certificate
		return len(certificate) > 0, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("CertificateSigningRequest %s was not signed within %s: the cluster must sign client certificates (signer %s), which Amazon EKS does not: use --credentials=token",
			name, signTimeout, certificatesv1.KubeAPIServerClientSignerName)
	}
	return certificate, err
}
