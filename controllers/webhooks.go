// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/refract-project/refract/controllers/internal/ledger"
	"github.com/refract-project/refract/controllers/internal/metrics"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/reviews"
	"github.com/refract-project/refract/controllers/podscheduling"
	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/controllers/webhookcert"
	"github.com/refract-project/refract/internal/rbac"
)

// WebhookOptions are the settings of the admission webhooks.
type WebhookOptions struct {
	// Namespace is the namespace of the installation. It contains the Secret of the webhook CA and the Service of the
	// webhooks.
	Namespace string
	// Host and Port are the address where the server listens. If Host is empty, it listens on all addresses.
	Host string
	Port int
	// ClientCAFile contains certificate authorities in PEM. Callers must have a client certificate that one of them has
	// signed. If it is empty, callers need no certificate. The file is read for each connection, so it can be replaced
	// at run time.
	ClientCAFile string
	// RuntimeClass is a runtime class. Pods with this class are not changed.
	RuntimeClass string
}

// askForCertificates restricts the callers of the webhooks to clients with a certificate from an authority in
// ClientCAFile.
func (o *WebhookOptions) askForCertificates(c *tls.Config) {
	if o.ClientCAFile == "" {
		return
	}
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		authorities, err := o.clientCAs()
		if err != nil {
			return nil, err
		}
		asking := c.Clone()
		asking.ClientAuth, asking.ClientCAs = tls.RequireAndVerifyClientCert, authorities
		return asking, nil
	}
}

// clientCAs returns the authorities in ClientCAFile, or nil if ClientCAFile is empty.
func (o *WebhookOptions) clientCAs() (*x509.CertPool, error) {
	if o.ClientCAFile == "" {
		return nil, nil //nolint:nilnil // anyone may call
	}
	pem, err := os.ReadFile(o.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("reading --webhook-client-ca-file, %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--webhook-client-ca-file=%s has no certificate: use PEM", o.ClientCAFile)
	}
	return authorities, nil
}

// registerWebhooks adds the server of all webhooks to mgr. It returns the controller of the server's certificate. Every
// replica serves the webhooks.
func registerWebhooks(ctx context.Context, mgr manager.Manager, m *metrics.Metrics, quotas *ledger.Ledger, o *WebhookOptions) (Controller, error) {
	service := rbac.WebhookName + "." + o.Namespace + ".svc"
	// The certificate is also valid for localhost, so that an API server on the same machine can verify it.
	certificate := webhookcert.NewCertificate(mgr.GetConfig(), types.NamespacedName{Namespace: o.Namespace, Name: rbac.WebhookName}, service, "localhost")
	config := &tls.Config{GetCertificate: certificate.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	o.askForCertificates(config)
	server := reviews.NewServer(net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), config)
	if _, err := o.clientCAs(); err != nil {
		return nil, err
	}
	scheduling := podscheduling.NewWebhook(mgr.GetClient(), mgr.GetAPIReader(), podscheduling.Options{RuntimeClass: o.RuntimeClass})
	if err := scheduling.Register(ctx, mgr, server); err != nil {
		return nil, fmt.Errorf("registering the scheduling webhook, %w", err)
	}
	if err := quota.NewWebhook(quotas, o.ClientCAFile != "").Register(ctx, mgr, server); err != nil {
		return nil, fmt.Errorf("registering the quota webhook, %w", err)
	}
	if err := mgr.Add(server); err != nil {
		return nil, fmt.Errorf("adding the webhook server, %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook-certificate", certificate.Ready); err != nil {
		return nil, fmt.Errorf("adding readiness check, %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", server.StartedChecker()); err != nil {
		return nil, fmt.Errorf("adding readiness check, %w", err)
	}
	const name = "webhookcert"
	count, deny := m.Failed(name), report.Denials(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), mgr.GetAPIReader(), m.Recorder(mgr.GetEventRecorder(name), name))
	return webhookcert.NewController(m.Client(mgr.GetClient(), name, metrics.Local), mgr.GetAPIReader(), certificate,
		webhookcert.Options{Configuration: rbac.WebhookName, Failed: func(err error) { count(err); deny(err) }}), nil
}
