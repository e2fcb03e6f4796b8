// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/tls"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/refract-project/refract/controllers/internal/metrics"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/podscheduling"
	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/controllers/webhookcert"
	"github.com/refract-project/refract/internal/rbac"
)

// WebhookOptions are the settings of the admission webhooks.
type WebhookOptions struct {
	// Namespace of the installation, where the Secret of their authority is and
	// the Service that leads to them.
	Namespace string
	// Host and Port to listen on; an empty host is all addresses.
	Host string
	Port int
	// RuntimeClass names the runtime class whose pods are left alone.
	RuntimeClass string
}

// registerWebhooks adds a server of all webhooks to mgr, and returns the
// controller of its certificate. Every replica serves.
func registerWebhooks(ctx context.Context, mgr manager.Manager, m *metrics.Metrics, quotas *quota.Ledger, o *WebhookOptions) (Controller, error) {
	service := rbac.WebhookName + "." + o.Namespace + ".svc"
	// By the name localhost an API server on the same machine finds it, too.
	certificate := webhookcert.NewCertificate(mgr.GetConfig(), types.NamespacedName{Namespace: o.Namespace, Name: rbac.WebhookName}, service, "localhost")
	server := webhook.NewServer(webhook.Options{
		Host: o.Host, Port: o.Port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.GetCertificate, c.MinVersion = certificate.GetCertificate, tls.VersionTLS12 }},
	})
	if err := podscheduling.NewWebhook(mgr.GetClient(), podscheduling.Options{RuntimeClass: o.RuntimeClass}).Register(ctx, mgr, server); err != nil {
		return nil, fmt.Errorf("registering the scheduling webhook, %w", err)
	}
	if err := quota.NewWebhook(quotas, false).Register(ctx, mgr, server); err != nil {
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
