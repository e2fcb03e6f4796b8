// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
)

// Credentials is the kind of credentials that a consumer uses to authenticate at its provider.
type Credentials string

const (
	// Tokens are issued for a ServiceAccount on the provider and expire with it. The consumer's controller manager
	// renews them.
	Tokens Credentials = "token"
	// Certificates are signed by the provider. The consumer's controller manager renews them if the provider's
	// controller manager supports it (authentication.enabled). Otherwise Peer renews them. A certificate cannot be
	// revoked before it expires.
	Certificates Credentials = "certificate"
)

// ParseCredentials returns the kind of credentials with the given name.
func ParseCredentials(name string) (Credentials, error) {
	switch kind := Credentials(name); kind {
	case Tokens, Certificates:
		return kind, nil
	}
	return "", fmt.Errorf("%q is unknown: use %s or %s", name, Tokens, Certificates)
}

// identity is the access of a consumer to its provider.
type identity struct {
	kubeconfig []byte
	expires    time.Time
}

// identity returns the existing identity if it is valid for at least a third of its lifetime, and a new one
// otherwise.
func (o *Options) identity(ctx context.Context) (found *identity, isNew bool, err error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(o.Provider.ID()), Name: secretName(o.Provider.ID())}
	err = o.Consumer.Client.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("cluster %s: getting Secret %s, %w", o.Consumer.Name, key, err)
	}
	if err == nil && !IsOurs(secret) {
		return nil, false, fmt.Errorf("cluster %s: Secret %s was not created by refractctl: it belongs to another peering, which must be ended first", o.Consumer.Name, key)
	}
	if err == nil {
		known, err := o.usable(ctx, secret.Data[wire.KubeconfigSecretKey], time.Now())
		if known != nil || err != nil {
			return known, false, err
		}
	}
	made, err := o.newIdentity(ctx)
	return made, true, err
}

// usable returns nil for a kubeconfig that is for another server or user, is not of the desired kind, or expires
// soon.
func (o *Options) usable(ctx context.Context, kubeconfig []byte, now time.Time) (*identity, error) {
	config, err := connection.Parse(kubeconfig)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // it is replaced
	}
	ca, err := o.authority()
	if err != nil || config.Host != o.server() || config.ServerName != o.Provider.Config.ServerName || !bytes.Equal(config.CAData, ca) {
		return nil, err
	}
	validity := credentials.ValidityOf(config)
	if !validity.Known() || validity.Until.Sub(now) < validity.Life()/3 {
		return nil, nil //nolint:nilnil // as above
	}
	known := &identity{kubeconfig: kubeconfig, expires: validity.Until}
	if o.Credentials == Certificates {
		if !o.certified(config.CertData) {
			return nil, nil //nolint:nilnil // as above
		}
		return known, nil
	}
	if accepted, err := o.accepts(ctx, config.BearerToken); err != nil || !accepted {
		return nil, err
	}
	return known, nil
}

// newIdentity returns an identity that the provider has just issued.
func (o *Options) newIdentity(ctx context.Context) (*identity, error) {
	give := o.token
	if o.Credentials == Certificates {
		give = o.certificate
	}
	user, expires, err := give(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", o.Provider.Name, err)
	}
	kubeconfig, err := o.kubeconfig(o.server(), user)
	if err != nil {
		return nil, err
	}
	return &identity{kubeconfig: kubeconfig, expires: expires}, o.checkKubeconfig(ctx, kubeconfig)
}

// kubeconfig returns a kubeconfig for the provider at the given address.
func (o *Options) kubeconfig(server string, user *clientcmdapi.AuthInfo) ([]byte, error) {
	config, err := o.kubeconfigFor(server, user)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig, %w", err)
	}
	return kubeconfig, nil
}

func (o *Options) kubeconfigFor(server string, user *clientcmdapi.AuthInfo) (*clientcmdapi.Config, error) {
	ca, err := o.authority()
	if err != nil {
		return nil, err
	}
	consumer, provider := o.Consumer.ID(), o.Provider.ID()
	config := clientcmdapi.NewConfig()
	config.Clusters[provider] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca, TLSServerName: o.Provider.Config.ServerName}
	config.AuthInfos[consumer] = user
	config.Contexts[provider] = &clientcmdapi.Context{Cluster: provider, AuthInfo: consumer}
	config.CurrentContext = provider
	return config, nil
}

// server returns the address of the provider's API server that the consumer uses.
func (o *Options) server() string {
	if o.APIServerURL != "" {
		return o.APIServerURL
	}
	return o.Provider.Config.Host
}

// authority returns the CA certificates that verify the provider's API server.
func (o *Options) authority() ([]byte, error) {
	tls := o.Provider.Config.TLSClientConfig
	switch {
	case tls.Insecure:
		return nil, fmt.Errorf("cluster %s: kubeconfig sets insecure-skip-tls-verify, so the server certificate cannot be verified; add certificate-authority-data", o.Provider.Name)
	case len(tls.CAData) > 0:
		return tls.CAData, nil
	case tls.CAFile != "":
		read, err := os.ReadFile(tls.CAFile)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: reading the certificate authority, %w", o.Provider.Name, err)
		}
		return read, nil
	}
	return nil, nil // the system's CAs are used
}
