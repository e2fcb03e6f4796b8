// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/tenant"
)

// CertificateIssuer requests client certificates from the provider. The private key is written only to the consumer's
// Secret.
type CertificateIssuer struct{ Tenant tenant.Tenant }

// signTimeout limits how long a signer may take. The signers of Kubernetes take less than a second.
const signTimeout = 30 * time.Second

// Issue returns a new certificate and its private key.
func (i CertificateIssuer) Issue(ctx context.Context) (*clientcmdapi.AuthInfo, time.Time, error) {
	var none time.Time
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, none, fmt.Errorf("generating a key, %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, none, fmt.Errorf("encoding the key, %w", err)
	}
	id, c := i.Tenant.Consumer, i.Tenant.Provider.Client
	request, err := clientcert.New(clientcert.Consumer(id), key)
	if err != nil {
		return nil, none, err
	}
	signed, err := clientcert.Sign(ctx, c, c, clientcert.Request{
		PEM: request, GenerateName: "refract-" + id + "-", Labels: cluster.Meta("", "", map[string]string{wire.RemoteClusterIDLabel: id}).Labels,
		Reason: "RefractPeering", Message: "Approved with refractctl peer", Timeout: signTimeout,
	})
	if errors.Is(err, clientcert.ErrNotSigned) {
		err = fmt.Errorf("%w; or use --credentials=token", err)
	}
	if err != nil {
		return nil, none, err
	}
	validity := clientcert.ValidityFor(signed, clientcert.Consumer(id), key.Public())
	if !validity.Known() {
		return nil, none, errors.New("the signed certificate is not the one that was requested")
	}
	return &clientcmdapi.AuthInfo{ClientCertificateData: signed, ClientKeyData: keyPEM}, validity.Until, nil
}

// IsReusable reports whether a certificate was issued for the consumer.
func (i CertificateIssuer) IsReusable(_ context.Context, config *rest.Config) (bool, error) {
	return clientcert.ValidityFor(config.CertData, clientcert.Consumer(i.Tenant.Consumer), nil).Known(), nil
}
