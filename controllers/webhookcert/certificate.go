// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhookcert maintains the serving certificates of the admission webhooks, and writes their CA into the
// webhook configuration.
//
// It uses cert-manager's library: a CA is stored in a Secret and renewed after two thirds of its lifetime. Every
// replica issues a certificate from this CA for itself, and keeps it only in memory. It issues a new one when the CA
// changes or the certificate is about to expire. No volume is mounted, and no process has to be restarted. The
// Controller writes the CA into the webhook configuration.
package webhookcert

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	certtls "github.com/cert-manager/cert-manager/pkg/server/tls"
	"github.com/cert-manager/cert-manager/pkg/server/tls/authority"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// authorityLifetime is the lifetime of the CA. With a shorter lifetime, the CA changes more often, and calls fail
	// for a moment until the API server has loaded the new CA.
	authorityLifetime = 365 * 24 * time.Hour
	// certificateLifetime is the lifetime of a serving certificate. With a shorter lifetime, more signatures are
	// needed. With a longer lifetime, a stolen key can be used for longer.
	certificateLifetime = 7 * 24 * time.Hour
)

// Certificate provides a valid serving certificate for this process. It is a Runnable that runs on every replica. It is
// safe for concurrent use.
type Certificate struct {
	secret    types.NamespacedName
	authority *authority.DynamicAuthority
	source    *certtls.DynamicSource
}

// NewCertificate returns a certificate for dnsNames, signed by the CA in the Secret. The Secret is empty at first, but
// must exist, because processes may not create Secrets.
func NewCertificate(config *rest.Config, secret types.NamespacedName, dnsNames ...string) *Certificate {
	a := &authority.DynamicAuthority{
		SecretNamespace: secret.Namespace, SecretName: secret.Name, RESTConfig: config,
		CommonName: secret.Name + "-ca", CADuration: authorityLifetime, LeafDuration: certificateLifetime,
	}
	return &Certificate{secret: secret, authority: a, source: &certtls.DynamicSource{DNSNames: dnsNames, Authority: a}}
}

// Start keeps the certificate valid until ctx is done.
func (c *Certificate) Start(ctx context.Context) error {
	return c.source.Start(logr.NewContext(ctx, log.Log.WithName("webhook-certificate")))
}

// NeedLeaderElection returns false because every replica serves the webhooks.
func (c *Certificate) NeedLeaderElection() bool { return false }

// GetCertificate implements tls.Config.GetCertificate.
func (c *Certificate) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.source.GetCertificate(hello)
}

// Ready is a readiness check. It fails while there is no valid certificate.
func (c *Certificate) Ready(*http.Request) error {
	if !c.source.Healthy() {
		return fmt.Errorf("the webhook has no certificate yet: check that Secret %s exists and that this process may get, list, watch and update it", c.secret)
	}
	return nil
}
