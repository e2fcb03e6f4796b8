// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// renewalAccess returns the objects that allow the consumer to request its next certificate.
func (t Tenant) renewalAccess() []client.Object {
	prefix := t.Provider.Installation.RolePrefix
	return OwnRoles(prefix, nil, []rbac.Object{rbac.Peer(prefix, t.Consumer).Renewal(t.Namespace())})
}

// PermitRenewal allows the consumer to request its next certificate if two conditions are met: the chart has created
// the role for renewals (authentication.enabled), and refractctl has created the tenant namespace, which records the
// key. Otherwise it revokes this permission. renews reports whether the conditions are met.
func (t Tenant) PermitRenewal(ctx context.Context, writer *cluster.Writer) (renews bool, err error) {
	role := rbac.RemoteRenewal().Named(t.Provider.Installation.RolePrefix)
	err = t.Provider.Client.Get(ctx, client.ObjectKey{Name: role}, &rbacv1.ClusterRole{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("cluster %s: getting ClusterRole %s, %w", t.Provider.Name, role, err)
	}
	if err == nil {
		found, _, err := t.Provider.Find(ctx, t.NamespaceObject())
		if err != nil {
			return false, err
		}
		if found != nil && cluster.IsOurs(found) {
			return true, writer.Apply(ctx, t.renewalAccess()...)
		}
	}
	return false, t.RevokeRenewal(ctx, cluster.NewRemover(writer.Side, false))
}

// RevokeRenewal ensures that the holder of the current certificate cannot get another one.
func (t Tenant) RevokeRenewal(ctx context.Context, remover *cluster.Remover) error {
	if err := remover.Remove(ctx, t.renewalAccess()...); err != nil {
		return err
	}
	found, _, err := t.Provider.Find(ctx, t.NamespaceObject())
	if err != nil || found == nil || !cluster.IsOurs(found) || found.Annotations[wire.ConsumerKeysAnnotation] == "" {
		return err
	}
	return remover.Change(func() error { return t.writeKeys(ctx, nil) })
}

// RecordKey records the key of the certificate in a consumer's kubeconfig, and drops all other recorded keys. If the
// certificate is not new and its key is already recorded, RecordKey changes nothing.
func (t Tenant) RecordKey(ctx context.Context, kubeconfig []byte, isNew bool) error {
	config, err := connection.Parse(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig, %w", err)
	}
	certificates, err := cert.ParseCertsPEM(config.CertData)
	if err != nil {
		return fmt.Errorf("reading the certificate, %w", err)
	}
	key := certificates[0].PublicKey
	found, _, err := t.Provider.Find(ctx, t.NamespaceObject())
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
	return t.writeKeys(ctx, clientcert.Keys{fingerprint})
}

// writeKeys records keys on the tenant namespace if the namespace exists. An empty list removes the record.
func (t Tenant) writeKeys(ctx context.Context, keys clientcert.Keys) error {
	var value any // nil removes the annotation
	if len(keys) > 0 {
		value = keys.String()
	}
	err := t.Provider.Annotate(ctx, t.NamespaceObject(), wire.ConsumerKeysAnnotation, value)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
