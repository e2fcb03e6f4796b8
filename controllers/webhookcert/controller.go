// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package webhookcert

import (
	"bytes"
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// authorityKey is the key of the CA certificate (PEM) in the CA's Secret.
const authorityKey = "ca.crt"

const fieldManager = wire.WebhookCertFieldManager

// Options are the settings of the controller.
type Options struct {
	// Configuration is the name of the MutatingWebhookConfiguration.
	Configuration string
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller writes the CA into a webhook configuration.
type Controller struct {
	client      client.Client
	live        client.Reader
	certificate *Certificate
	options     Options
}

// NewController returns a controller that writes through c. It reads the CA's Secret with live, because Secrets are not
// cached.
func NewController(c client.Client, live client.Reader, certificate *Certificate, options Options) *Controller {
	return &Controller{client: c, live: live, certificate: certificate, options: options}
}

// Name returns the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "webhookcert" }

// Reconcile writes the CA bundle into all webhooks of the configuration.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.client.Get(ctx, request.NamespacedName, configuration); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{}
	if err := c.live.Get(ctx, c.certificate.secret, secret); err != nil {
		return reconcile.Result{}, fmt.Errorf("getting the authority of the webhooks, %w", err)
	}
	patch := trustPatch(configuration, secret.Data[authorityKey])
	if len(patch) == 0 {
		return reconcile.Result{}, nil
	}
	send, err := patch.For(configuration.UID)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := c.client.Patch(ctx, configuration, send, client.FieldOwner(fieldManager)); err != nil {
		return reconcile.Result{}, fmt.Errorf("writing the authority into MutatingWebhookConfiguration %s, %w", configuration.Name, err)
	}
	return reconcile.Result{}, nil
}

// trustPatch returns a patch that sets the CA bundle in each webhook that has another one. The patch is empty if there
// is no CA yet.
func trustPatch(configuration *admissionregistrationv1.MutatingWebhookConfiguration, authority []byte) jsonpatch.Patch {
	var patch jsonpatch.Patch
	for i := range configuration.Webhooks {
		webhook := &configuration.Webhooks[i]
		if len(authority) == 0 || bytes.Equal(webhook.ClientConfig.CABundle, authority) {
			continue
		}
		path := jsonpatch.Pointer("webhooks", fmt.Sprint(i))
		patch.Test(path+"/name", webhook.Name)
		patch.Add(path+"/clientConfig/caBundle", authority)
	}
	return patch
}

// CacheOptions restricts the manager's cache to the webhook configuration, because the controller may not read any
// other.
func CacheOptions(configuration string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}: {Field: fields.OneTermEqualSelector("metadata.name", configuration)},
	}
}

// Enforces returns an empty list of the enforced kind and a filter for the configuration. Metrics use both.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &admissionregistrationv1.MutatingWebhookConfigurationList{}, func(o client.Object) bool { return o.GetName() == c.options.Configuration }
}

// Register adds the controller and the certificate to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	if err := mgr.Add(c.certificate); err != nil {
		return fmt.Errorf("adding the certificate of the webhooks, %w", err)
	}
	// The watch starts before the certificate, and the channel keeps a rotation until the controller receives it.
	rotation, rotated := make(chan struct{}, 1), make(chan event.GenericEvent)
	c.certificate.authority.WatchRotation(rotation)
	if err := mgr.Add(c.passOn(rotation, rotated)); err != nil {
		return fmt.Errorf("watching the authority of the webhooks, %w", err)
	}
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		For(&admissionregistrationv1.MutatingWebhookConfiguration{}).
		WatchesRawSource(source.Channel(rotated, &handler.EnqueueRequestForObject{})).
		Complete(report.Failures(c, c.options.Failed))
}

// passOn turns rotations of the CA into events for the controller. Like the controller, it runs only on the leader.
func (c *Controller) passOn(rotation <-chan struct{}, rotated chan<- event.GenericEvent) manager.RunnableFunc {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	configuration.Name = c.options.Configuration
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-rotation:
			}
			select {
			case <-ctx.Done():
				return nil
			case rotated <- event.GenericEvent{Object: configuration}:
			}
		}
	}
}
