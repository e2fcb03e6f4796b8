// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/clientcert"
)

// certificate requests a client certificate that the provider signs. The private key leaves this process only in the
// Secret of the consumer.
func (o *Options) certificate(ctx context.Context) (*clientcmdapi.AuthInfo, time.Time, error) {
	if o.Provider.liqo {
		return o.tenancy(ctx)
	}
	var none time.Time
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, none, fmt.Errorf("generating a key, %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, none, fmt.Errorf("encoding the key, %w", err)
	}
	request, err := clientcert.New(o.subject(), key)
	if err != nil {
		return nil, none, err
	}
	id := o.Consumer.ID()
	signed, err := clientcert.Sign(ctx, o.Provider.Client, o.Provider.Client, clientcert.Request{
		PEM: request, GenerateName: "refract-" + id + "-", Labels: meta("", "", map[string]string{wire.RemoteClusterIDLabel: id}).Labels,
		Reason: "RefractPeering", Message: "Approved with refractctl peer", Timeout: signTimeout,
	})
	if errors.Is(err, clientcert.ErrNotSigned) {
		err = fmt.Errorf("%w; or use --credentials=token", err)
	}
	if err != nil {
		return nil, none, err
	}
	validity := clientcert.ValidityFor(signed, o.subject(), key.Public())
	if !validity.Known() {
		return nil, none, errors.New("the signed certificate is not the one that was requested")
	}
	return &clientcmdapi.AuthInfo{ClientCertificateData: signed, ClientKeyData: keyPEM}, validity.Until, nil
}

func (o *Options) subject() clientcert.Subject {
	if o.Provider.liqo {
		return clientcert.Subject{CommonName: user(o.Consumer.ID()), Organization: wire.ControlPlaneGroup}
	}
	return clientcert.Consumer(o.Consumer.ID())
}

// certified reports whether a certificate was issued for this consumer.
func (o *Options) certified(data []byte) bool {
	return clientcert.ValidityFor(data, o.subject(), nil).Known()
}

// signTimeout limits how long a signer may take. The signers of Kubernetes take less than a second.
const signTimeout = 30 * time.Second
