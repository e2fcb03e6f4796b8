// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhookcert maintains the certificates of the admission webhooks, and writes the CA bundle into their
// configurations.
//
// It uses cert-manager's library: a CA is stored in a Secret and renewed after two thirds of its lifetime; every
// replica has its own certificate from it, only in memory, and gets a new one as soon as the CA or the certificate
// requires it. Nothing is mounted or restarted. The Controller here writes the CA into the webhook configuration.
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
	// authorityLife is how long an authority is valid. Shorter means that the
	// API server, which learns of a new one a moment later, fails more often.
	authorityLife = 365 * 24 * time.Hour
	// certificateLife is how long one of its certificates is valid. Shorter
	// costs a signature; longer keeps a stolen key useful.
	certificateLife = 7 * 24 * time.Hour
)

// Certificate is the serving certificate of this process, always a valid one.
// It is safe for concurrent use, and a Runnable of every replica.
type Certificate struct {
	secret    types.NamespacedName
	authority *authority.DynamicAuthority
	source    *certtls.DynamicSource
}

// NewCertificate returns a certificate for dnsNames of the authority in secret.
// That Secret must exist, empty at first: no process may create Secrets.
func NewCertificate(config *rest.Config, secret types.NamespacedName, dnsNames ...string) *Certificate {
	a := &authority.DynamicAuthority{
		SecretNamespace: secret.Namespace, SecretName: secret.Name, RESTConfig: config,
		CommonName: secret.Name + "-ca", CADuration: authorityLife, LeafDuration: certificateLife,
	}
	return &Certificate{secret: secret, authority: a, source: &certtls.DynamicSource{DNSNames: dnsNames, Authority: a}}
}

// Start keeps the certificate valid until ctx ends.
func (c *Certificate) Start(ctx context.Context) error {
	return c.source.Start(logr.NewContext(ctx, log.Log.WithName("webhook-certificate")))
}

// NeedLeaderElection returns false: every replica serves.
func (c *Certificate) NeedLeaderElection() bool { return false }

// GetCertificate implements tls.Config.GetCertificate.
func (c *Certificate) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.source.GetCertificate(hello)
}

// Ready is a readiness check.
func (c *Certificate) Ready(*http.Request) error {
	if !c.source.Healthy() {
		return fmt.Errorf("the webhook has no certificate yet: check that Secret %s exists and that this process may get, list, watch and update it", c.secret)
	}
	return nil
}
