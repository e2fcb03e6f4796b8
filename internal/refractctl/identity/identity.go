// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package identity provides a consumer's access to a provider. It is a kubeconfig with the Address at which the
// consumer reaches the provider, and with credentials from an Issuer.
package identity

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// Kind is the kind of credentials that a consumer uses to authenticate to its provider.
type Kind string

const (
	// Tokens are tokens of a ServiceAccount on the provider. They become invalid when the ServiceAccount is deleted.
	// The consumer's controller manager renews them.
	Tokens Kind = "token"
	// Certificates are client certificates from the provider. The consumer's controller manager renews them if the
	// provider's controller manager supports this (authentication.enabled). Otherwise refractctl peer renews them. A
	// certificate cannot be revoked before it expires.
	Certificates Kind = "certificate"
)

// ParseKind returns the kind of credentials with the given name.
func ParseKind(name string) (Kind, error) {
	switch kind := Kind(name); kind {
	case Tokens, Certificates:
		return kind, nil
	}
	return "", fmt.Errorf("%q is unknown: use %s or %s", name, Tokens, Certificates)
}

// SecretName returns the name of the Secret with the kubeconfig for a provider. It is the same as in Liqo.
func SecretName(provider string) string { return "kubeconfig-controlplane-" + provider }

// Identity is a consumer's access to its provider.
type Identity struct {
	Kubeconfig []byte
	Expires    time.Time
	// IsNew is true if the identity has just been issued.
	IsNew bool
}

// Issuer issues credentials for a consumer.
type Issuer interface {
	// Issue returns new credentials and the time at which they expire.
	Issue(ctx context.Context) (*clientcmdapi.AuthInfo, time.Time, error)
	// IsReusable reports whether existing credentials belong to the consumer, and are of the kind that this issuer
	// issues. The caller has already checked that they are valid.
	IsReusable(ctx context.Context, config *rest.Config) (bool, error)
}

// Obtain returns the existing identity if it is still suitable (see reuse). Otherwise it issues a new one. It returns
// an error if refractctl has not created the existing Secret.
func (a *Address) Obtain(ctx context.Context, issuer Issuer) (*Identity, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(a.Provider.ID()), Name: SecretName(a.Provider.ID())}
	err := a.Consumer.Client.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cluster %s: getting Secret %s, %w", a.Consumer.Name, key, err)
	}
	if err == nil && !cluster.IsOurs(secret) {
		return nil, fmt.Errorf("cluster %s: Secret %s was not created by refractctl: it belongs to another peering, which must be ended first", a.Consumer.Name, key)
	}
	if err == nil {
		known, err := a.reuse(ctx, issuer, secret.Data[wire.KubeconfigSecretKey], time.Now())
		if known != nil || err != nil {
			return known, err
		}
	}
	return a.issue(ctx, issuer)
}

// reuse returns the identity in a kubeconfig. It returns nil if the kubeconfig is for another server or user, is not of
// the desired kind, or if less than a third of the lifetime is left.
func (a *Address) reuse(ctx context.Context, issuer Issuer, kubeconfig []byte, now time.Time) (*Identity, error) {
	config, err := connection.Parse(kubeconfig)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // it is replaced
	}
	ca, err := a.readAuthority()
	if err != nil || config.Host != a.URL() || config.ServerName != a.Provider.Config.ServerName || !bytes.Equal(config.CAData, ca) {
		return nil, err
	}
	validity := credentials.ValidityOf(config)
	if !validity.Known() || validity.Until.Sub(now) < validity.Life()/3 {
		return nil, nil //nolint:nilnil // as above
	}
	if reusable, err := issuer.IsReusable(ctx, config); err != nil || !reusable {
		return nil, err
	}
	return &Identity{Kubeconfig: kubeconfig, Expires: validity.Until}, nil
}

// issue returns a new identity. It returns an error if the provider does not accept the new credentials at the address.
func (a *Address) issue(ctx context.Context, issuer Issuer) (*Identity, error) {
	user, expires, err := issuer.Issue(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", a.Provider.Name, err)
	}
	kubeconfig, err := a.Kubeconfig(user)
	if err != nil {
		return nil, err
	}
	return &Identity{Kubeconfig: kubeconfig, Expires: expires, IsNew: true}, a.CheckKubeconfig(ctx, kubeconfig)
}

// Kubeconfig returns a kubeconfig for the provider with the given credentials.
func (a *Address) Kubeconfig(user *clientcmdapi.AuthInfo) ([]byte, error) {
	config, err := a.ClientConfig(user)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig, %w", err)
	}
	return kubeconfig, nil
}

// ClientConfig returns the content of the kubeconfig for the provider. The cluster and the context are named after the
// provider.
func (a *Address) ClientConfig(user *clientcmdapi.AuthInfo) (*clientcmdapi.Config, error) {
	ca, err := a.readAuthority()
	if err != nil {
		return nil, err
	}
	consumer, provider := a.Consumer.ID(), a.Provider.ID()
	config := clientcmdapi.NewConfig()
	config.Clusters[provider] = &clientcmdapi.Cluster{Server: a.URL(), CertificateAuthorityData: ca, TLSServerName: a.Provider.Config.ServerName}
	config.AuthInfos[consumer] = user
	config.Contexts[provider] = &clientcmdapi.Context{Cluster: provider, AuthInfo: consumer}
	config.CurrentContext = provider
	return config, nil
}

// readAuthority returns the CA certificates for verifying the provider's API server. It returns none if the system's CA
// certificates are sufficient.
func (a *Address) readAuthority() ([]byte, error) {
	tls := a.Provider.Config.TLSClientConfig
	switch {
	case tls.Insecure:
		return nil, fmt.Errorf("cluster %s: kubeconfig sets insecure-skip-tls-verify, so the server certificate cannot be verified; add certificate-authority-data", a.Provider.Name)
	case len(tls.CAData) > 0:
		return tls.CAData, nil
	case tls.CAFile != "":
		read, err := os.ReadFile(tls.CAFile)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: reading the certificate authority, %w", a.Provider.Name, err)
		}
		return read, nil
	}
	return nil, nil
}
