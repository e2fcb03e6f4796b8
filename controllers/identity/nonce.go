// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"fmt"
	"regexp"

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
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/clientcert"
)

// nonces signs the nonces of providers.
type nonces struct {
	access  *Access
	client  client.Client
	secrets cache.Cache
	report  *report.Reporter
}

const (
	signedReason    = "NonceSigned"
	notSignedReason = "NonceNotSigned"
	signAction      = "Sign"
)

// nonce matches the nonces that providers generate: random bytes in base64 or hexadecimal digits. The key of the
// cluster must sign nothing else, such as certificate requests, which are in binary form.
var nonce = regexp.MustCompile(`^[A-Za-z0-9+/_-]{16,256}={0,2}$`)

// Reconcile signs the nonce in one Secret.
func (n *nonces) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := n.secrets.Get(ctx, request.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if secret.DeletionTimestamp != nil || secret.Labels[wire.SignedNonceLabel] == "" || len(secret.Data[wire.NonceKey]) == 0 {
		return reconcile.Result{}, nil
	}
	provider, err := n.access.providerOf(ctx, secret.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if provider == "" || secret.Labels[wire.RemoteClusterIDLabel] != provider {
		n.report.Warn(secret, notSignedReason, signAction, fmt.Sprintf("label %s is %q, but namespace %s is not the tenant namespace of that cluster: the nonce is not signed",
			wire.RemoteClusterIDLabel, secret.Labels[wire.RemoteClusterIDLabel], secret.Namespace))
		return reconcile.Result{}, nil
	}
	if !nonce.Match(secret.Data[wire.NonceKey]) {
		n.report.Warn(secret, notSignedReason, signAction, "the value of "+wire.NonceKey+" is not a nonce, which has 16 to 256 letters and digits: create the Secret again with the nonce of the provider (liqoctl get nonce)")
		return reconcile.Result{}, nil
	}
	key, err := n.access.clusterKey(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if clientcert.Verify(key.Public(), secret.Data[wire.NonceKey], secret.Data[wire.SignedNonceKey]) {
		return reconcile.Result{}, nil
	}
	signature, err := clientcert.SignMessage(bytes.Clone(secret.Data[wire.NonceKey]), key)
	if err != nil {
		return reconcile.Result{}, err
	}
	signed := secret.DeepCopy()
	signed.Data[wire.SignedNonceKey] = signature
	if err := n.client.Patch(ctx, signed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager)); err != nil {
		return reconcile.Result{}, fmt.Errorf("storing the signature in Secret %s, %w", request.NamespacedName, err)
	}
	n.report.Clear(request.NamespacedName)
	n.report.Tell(secret, nil, signedReason, signAction, "Signed the nonce of provider "+provider+" with the key of this cluster")
	return reconcile.Result{}, nil
}

// register adds the controller to mgr. Its process is not allowed to watch other Secrets in all namespaces.
func (n *nonces) register(mgr manager.Manager) error {
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Field: fields.OneTermEqualSelector("metadata.name", wire.SignedNonceSecret)}},
	})
	if err != nil {
		return fmt.Errorf("preparing the cache of nonces, %w", err)
	}
	n.secrets = secrets
	for _, runnable := range []manager.Runnable{secrets, manager.RunnableFunc(n.access.ensureKey)} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("registering the nonces, %w", err)
		}
	}
	all := handler.EnqueueRequestsFromMapFunc(n.listAll)
	return builder.ControllerManagedBy(mgr).
		Named("noncesigner").
		WithOptions(workers.Options(1)).
		WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})).
		WatchesRawSource(source.Channel(n.access.keyCreated, all)).
		Complete(report.Failures(n, n.access.options.Failed))
}

// listAll returns a request for each nonce: a new key of this cluster has to sign them again.
func (n *nonces) listAll(ctx context.Context, _ client.Object) []reconcile.Request {
	secrets := &corev1.SecretList{}
	if err := n.secrets.List(ctx, secrets); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list the nonces that the new key has to sign")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(secrets.Items))
	for i := range secrets.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&secrets.Items[i])})
	}
	return requests
}
