// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/rbac"
)

// renewing reports whether the controller manager of the provider will renew the certificate of the consumer. It does
// so if the chart has created its role for renewals (authentication.enabled), and if this program has created the
// tenant namespace, which records the key.
func (o *Options) renewing(ctx context.Context) (bool, error) {
	if o.Credentials != Certificates || o.Provider.liqo || o.Provider.invitation != nil {
		return false, nil
	}
	role := rbac.RemoteRenewal().Named(o.Provider.installation.RolePrefix)
	err := o.Provider.Client.Get(ctx, client.ObjectKey{Name: role}, &rbacv1.ClusterRole{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cluster %s: getting ClusterRole %s, %w", o.Provider.Name, role, err)
	}
	found, _, err := o.Provider.find(ctx, o.tenantAt())
	return found != nil && IsOurs(found), err
}

// tenantAt returns the tenant namespace of the consumer on the provider.
func (o *Options) tenantAt() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: meta("", wire.TenantNamespace(o.Consumer.ID()), nil)}
}

// renewal returns the objects that permit the consumer to request its next certificate on the provider.
func (o *Options) renewal() []client.Object {
	prefix, consumer := o.Provider.installation.RolePrefix, o.Consumer.ID()
	return ownRoles(prefix, nil, []rbac.Object{rbac.Peer(prefix, consumer).Renewal(wire.TenantNamespace(consumer))})
}

// declareRenewal permits the consumer to request its next certificate, or revokes the permission.
func (o *Options) declareRenewal(ctx context.Context) (err error) {
	if o.Credentials == "" { // an invited consumer keeps its permission
		return nil
	}
	if o.renews, err = o.renewing(ctx); err != nil {
		return err
	}
	if o.renews {
		return o.Provider.applyAll(ctx, o.renewal())
	}
	return o.withdrawRenewal(ctx)
}

// withdrawRenewal ensures that no new certificate is issued to the holder of the current one.
func (o *Options) withdrawRenewal(ctx context.Context) error {
	if err := o.Provider.removeAll(ctx, o.renewal()); err != nil {
		return err
	}
	found, _, err := o.Provider.find(ctx, o.tenantAt())
	if err != nil || found == nil || !IsOurs(found) || found.Annotations[wire.ConsumerKeysAnnotation] == "" {
		return err
	}
	return o.writeKeys(ctx, nil)
}

// recordKey records, on the provider, the key of the certificate in a kubeconfig. The key of a new certificate
// replaces all recorded keys.
func (o *Options) recordKey(ctx context.Context, kubeconfig []byte, isNew bool) error {
	config, err := connection.Parse(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig, %w", err)
	}
	certificates, err := cert.ParseCertsPEM(config.CertData)
	if err != nil {
		return fmt.Errorf("reading the certificate, %w", err)
	}
	key := certificates[0].PublicKey
	found, _, err := o.Provider.find(ctx, o.tenantAt())
	if err != nil {
		return err
	}
	if found != nil && !isNew && clientcert.ParseKeys(found.Annotations[wire.ConsumerKeysAnnotation]).Has(key) {
		return nil
	}
	fingerprint, err := clientcert.Fingerprint(key)
	if err != nil {
		return err
	}
	return o.writeKeys(ctx, clientcert.Keys{fingerprint})
}

func (o *Options) writeKeys(ctx context.Context, keys clientcert.Keys) error {
	var value any // null removes the annotation
	if len(keys) > 0 {
		value = keys.String()
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{wire.ConsumerKeysAnnotation: value}}})
	if err != nil {
		return fmt.Errorf("encoding the keys of the consumer, %w", err)
	}
	tenant := o.tenantAt()
	if err := o.Provider.Client.Patch(ctx, tenant, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: annotating Namespace %s with the key of the consumer, %w", o.Provider.Name, tenant.Name, err)
	}
	return nil
}

// briefLife is the lifetime of a certificate below which a warning is printed. A consumer that is unreachable for
// longer than the lifetime loses its access.
const briefLife = time.Hour

// sayExpiry prints when the credentials expire, and who renews them.
func (o *Options) sayExpiry(access *identity) {
	left := time.Until(access.expires)
	until := access.expires.UTC().Format(time.DateOnly)
	if left < 2*24*time.Hour {
		until = access.expires.UTC().Format(time.RFC3339)
	}
	advice := "the controller manager renews it before"
	switch {
	case o.Credentials == Tokens || o.renews:
	case o.Provider.liqo:
		advice = "run the command again before"
	default:
		advice = "run the command again before; it is renewed automatically if you first set authentication.enabled of the chart in " + o.Provider.ID()
	}
	o.say("%s: the %s for %s expires on %s, %s", o.Consumer.ID(), o.Credentials, o.Provider.ID(), until, advice)
	if o.Credentials == Certificates && left < briefLife {
		o.say("%s: warning: certificates signed here are valid for %s only, and %s loses its access when it is away for longer: raise --cluster-signing-duration of kube-controller-manager, or use --credentials=token",
			o.Provider.ID(), left.Round(time.Minute), o.Consumer.ID())
	}
}
