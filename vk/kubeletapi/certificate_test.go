// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/vk/kubeletapi"
)

func testSignedCertificate(t *testing.T, s *suite) {
	config, err := s.consumer.ConfigFor("vk")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	signer, _ := kubeletapi.SignerOf("kubelet")
	source, err := kubeletapi.CertificateFromSigner(t.Context(), client, signer, "milan", t.TempDir(), net.ParseIP("127.0.0.1"))
	require.NoError(t, err)
	if _, err := source(nil); err == nil {
		t.Error("there is a certificate that nobody has signed")
	}
	s.await("approval", s.approve)
	var leaf *x509.Certificate
	s.await("the certificate", func(context.Context) error {
		certificate, err := source(nil)
		if err == nil {
			leaf, err = x509.ParseCertificate(certificate.Certificate[0])
		}
		return err
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.consumer.CA())
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "127.0.0.1"}); err != nil || leaf.Subject.CommonName != "system:node:milan" {
		t.Errorf("the certificate of %s: %v", leaf.Subject, err)
	}
}

// approve approves the only CertificateSigningRequest, as an administrator does.
func (s *suite) approve(ctx context.Context) error {
	requests := s.admin.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return errors.Join(err, errors.New("no request"))
	}
	request := &list.Items[0]
	if request.Spec.SignerName != certificatesv1.KubeletServingSignerName || request.Spec.Username != "vk" {
		return fmt.Errorf("request to %s by %s", request.Spec.SignerName, request.Spec.Username)
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
	_, err = requests.UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	return err
}
