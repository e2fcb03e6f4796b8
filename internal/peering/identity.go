// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
)

// certificateLife is asked for; a cluster may sign for less.
const certificateLife = 365 * 24 * time.Hour

// identity is how a consumer opens its provider.
type identity struct {
	kubeconfig []byte
	expires    time.Time
}

// identity returns the one that is there as long as it can be used for at least a third of its life, and else a new one.
func (o *Options) identity(ctx context.Context) (found *identity, isNew bool, err error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(o.Provider.ID()), Name: secretName(o.Provider.ID())}
	err = o.Consumer.Client.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("cluster %s: getting Secret %s, %w", o.Consumer.Name, key, err)
	}
	if err == nil && !isOurs(secret) {
		return nil, false, fmt.Errorf("cluster %s: Secret %s was not made by this program: it is the access of another peering, which must be ended first", o.Consumer.Name, key)
	}
	if err == nil {
		if known := o.usable(secret.Data[wire.KubeconfigSecretKey], time.Now()); known != nil {
			return known, false, nil
		}
	}
	made, err := o.newIdentity(ctx)
	return made, true, err
}

// usable returns nil for a kubeconfig that leads elsewhere, is for somebody else, or expires before long.
func (o *Options) usable(kubeconfig []byte, now time.Time) *identity {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil
	}
	ca, err := o.authority()
	if err != nil || config.Host != o.server() || config.ServerName != o.Provider.Config.ServerName || !bytes.Equal(config.CAData, ca) {
		return nil
	}
	certificates, err := cert.ParseCertsPEM(config.CertData)
	if err != nil {
		return nil
	}
	leaf := certificates[0]
	left, life := leaf.NotAfter.Sub(now), leaf.NotAfter.Sub(leaf.NotBefore)
	if leaf.Subject.CommonName != user(o.Consumer.ID()) || !slices.Equal(leaf.Subject.Organization, []string{o.Consumer.ID()}) || left < life/3 {
		return nil
	}
	return &identity{kubeconfig: kubeconfig, expires: leaf.NotAfter}
}

// newIdentity has the provider sign a certificate. The private key leaves this process only in the Secret of the consumer.
func (o *Options) newIdentity(ctx context.Context) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key, %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key, %w", err)
	}
	id := o.Consumer.ID()
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user(id), Organization: []string{id}}}, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate request, %w", err)
	}
	signed, err := o.sign(ctx, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", o.Provider.Name, err)
	}
	certificates, err := cert.ParseCertsPEM(signed)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: the signed certificate cannot be read, %w", o.Provider.Name, err)
	}
	ca, err := o.authority()
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[o.Provider.ID()] = &clientcmdapi.Cluster{Server: o.server(), CertificateAuthorityData: ca, TLSServerName: o.Provider.Config.ServerName}
	config.AuthInfos[id] = &clientcmdapi.AuthInfo{ClientCertificateData: signed, ClientKeyData: keyPEM}
	config.Contexts[o.Provider.ID()] = &clientcmdapi.Context{Cluster: o.Provider.ID(), AuthInfo: id}
	config.CurrentContext = o.Provider.ID()
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig, %w", err)
	}
	return &identity{kubeconfig: kubeconfig, expires: certificates[0].NotAfter}, nil
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
		return nil, fmt.Errorf("CertificateSigningRequest %s was not signed within %s: the cluster must sign client certificates (signer %s), which Amazon EKS does not",
			name, signTimeout, certificatesv1.KubeAPIServerClientSignerName)
	}
	return certificate, err
}

// server is the provider's API server, as the consumer reaches it.
func (o *Options) server() string {
	if o.APIServerURL != "" {
		return o.APIServerURL
	}
	return o.Provider.Config.Host
}

// authority returns the certificates that the provider's API server is verified with.
func (o *Options) authority() ([]byte, error) {
	tls := o.Provider.Config.TLSClientConfig
	switch {
	case tls.Insecure:
		return nil, fmt.Errorf("cluster %s: its kubeconfig says insecure-skip-tls-verify, so that nobody knows which certificate to expect: add certificate-authority-data", o.Provider.Name)
	case len(tls.CAData) > 0:
		return tls.CAData, nil
	case tls.CAFile != "":
		read, err := os.ReadFile(tls.CAFile)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: reading the certificate authority, %w", o.Provider.Name, err)
		}
		return read, nil
	}
	return nil, nil // the authorities of the system
}
