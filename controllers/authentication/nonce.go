// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/admission"
)

// nonces generates nonces. When a consumer joins, an empty Secret is created in its tenant namespace. This controller
// writes a nonce to the Secret.
type nonces struct {
	client  client.Client
	secrets cache.Cache
	report  *report.Reporter
}

const (
	notFilledReason = "NonceNotGenerated"
	fillAction      = "GenerateNonce"
)

// nonceBytes is the number of random bytes in a nonce. Liqo uses the same number.
const nonceBytes = 64

// Reconcile writes the nonce to one Secret. The nonce of a Secret never changes, because the Tenant contains a
// signature of the nonce.
func (n *nonces) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := n.secrets.Get(ctx, request.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(secret.Data[wire.NonceKey]) > 0 || secret.DeletionTimestamp != nil || secret.Labels[wire.NonceLabel] == "" {
		return reconcile.Result{}, nil
	}
	consumer, err := tenancy.Consumer(ctx, n.client, secret.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if consumer == "" || secret.Labels[wire.RemoteClusterIDLabel] != consumer {
		n.report.Warn(secret, notFilledReason, fillAction, fmt.Sprintf("Label %s is %q, but namespace %s is not the tenant namespace of that cluster: no nonce is generated",
			wire.RemoteClusterIDLabel, secret.Labels[wire.RemoteClusterIDLabel], secret.Namespace))
		return reconcile.Result{}, nil
	}
	random := make([]byte, nonceBytes)
	if _, err := rand.Read(random); err != nil {
		return reconcile.Result{}, fmt.Errorf("generating a nonce, %w", err)
	}
	filled := secret.DeepCopy()
	filled.Data = map[string][]byte{wire.NonceKey: []byte(base64.StdEncoding.EncodeToString(random))}
	if err := n.client.Patch(ctx, filled, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})); err != nil {
		if policy := admission.DenyingPolicy(err); policy != "" {
			n.report.Warn(secret, admission.DeniedReason, fillAction, admission.Note(policy, err))
		}
		return reconcile.Result{}, fmt.Errorf("storing the nonce in Secret %s, %w", request.NamespacedName, err)
	}
	log.FromContext(ctx).Info("Generated the nonce of a consumer", "consumer", consumer, "secret", request.String())
	return reconcile.Result{}, nil
}

// nonceCache returns a cache of the Secrets with nonces in all namespaces. The process is not allowed to watch other
// Secrets in all namespaces.
func nonceCache(mgr manager.Manager) (cache.Cache, error) {
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Field: fields.OneTermEqualSelector("metadata.name", wire.NonceSecret)}},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the cache of nonces, %w", err)
	}
	if err := mgr.Add(secrets); err != nil {
		return nil, fmt.Errorf("adding the cache of nonces, %w", err)
	}
	return secrets, nil
}

func (n *nonces) register(mgr manager.Manager, failed func(error)) error {
	return builder.ControllerManagedBy(mgr).
		Named("nonce").
		WithOptions(workers.Options(1)).
		WatchesRawSource(source.Kind(n.secrets, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})).
		Complete(report.Failures(n, failed))
}
