// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/renewal"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/connection"
)

// certificateSubject returns the subject of the certificates that this cluster uses to authenticate to its providers.
func (c *Controller) certificateSubject() clientcert.Subject {
	return clientcert.Consumer(c.options.ClusterID)
}

// nextCertificate lets the provider sign a certificate for a new key. The key of the current certificate authorizes the
// request.
func (c *Controller) nextCertificate(ctx context.Context, of providerAccess) (*nextCredentials, error) {
	present, err := presentKey(of.config)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key, %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key, %w", err)
	}
	renew, err := c.newRenew(of.tenant, key, present)
	if err != nil {
		return nil, err
	}
	opened, err := c.newRenewClient(of)
	if err != nil {
		return nil, err
	}
	signed, err := renewal.Request(ctx, opened, renew)
	if err != nil {
		return nil, err
	}
	validity := clientcert.ValidityFor(signed, c.certificateSubject(), key.Public())
	if !validity.Known() || !validity.Until.After(c.options.Clock.Now()) {
		return nil, report.Errorf(report.Provider, "the provider returned a certificate that does not match the request, or has expired")
	}
	config := rest.CopyConfig(of.config)
	config.CertData, config.KeyData = signed, keyPEM
	return &nextCredentials{config: config, until: validity.Until, put: func(user *clientcmdapi.AuthInfo) {
		user.ClientCertificateData, user.ClientKeyData = signed, keyPEM
	}}, nil
}

func presentKey(config *rest.Config) (crypto.Signer, error) {
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, fmt.Errorf("reading the present certificate and its key, %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the present key is a %T, which cannot sign", pair.PrivateKey)
	}
	return key, nil
}

// newRenew returns a Renew that requests a certificate for key. It is signed with present, the key of the current
// certificate.
func (c *Controller) newRenew(tenant string, key, present crypto.Signer) (*auth.Renew, error) {
	csr, err := clientcert.New(c.certificateSubject(), key)
	if err != nil {
		return nil, err
	}
	proof, err := clientcert.Prove(csr, present)
	if err != nil {
		return nil, err
	}
	public, err := clientcert.EncodeKey(present.Public())
	if err != nil {
		return nil, err
	}
	return &auth.Renew{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: wire.ConsumerRenew, Annotations: map[string]string{wire.RenewalProofAnnotation: base64.StdEncoding.EncodeToString(proof)}},
		Spec:       auth.RenewSpec{ConsumerClusterID: core.ClusterID(c.options.ClusterID), IdentityType: auth.ControlPlaneIdentityType, PublicKey: public, CSR: csr},
	}, nil
}

// newRenewClient returns a client for the provider that knows the kind Renew and sends no discovery requests.
func (c *Controller) newRenewClient(of providerAccess) (client.Client, error) {
	conn, err := connection.New(of.config, remote.SmallAnswers)
	if err != nil {
		return nil, err
	}
	conn.Expect(connection.Peer{ClusterID: of.provider, TenantNamespace: of.tenant})
	mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{auth.GroupVersion})
	mapper.Add(auth.GroupVersion.WithKind(auth.RenewKind), apimeta.RESTScopeNamespace)
	return client.New(conn.Config(), client.Options{Scheme: c.client.Scheme(), Mapper: mapper})
}
