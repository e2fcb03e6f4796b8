// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
)

// Drain revokes the access of a consumer that refractctl has admitted, and deletes its remote namespaces: with the data of their claims if
// DeleteData is set. Its tenant namespace, its account and its Quota stay, so that Activate admits it again. Only its ID need be known.
func (o *Options) Drain(ctx context.Context) error { return progress.Ended(ctx, o.drain(ctx)) }

func (o *Options) drain(ctx context.Context) error {
	c, consumer := o.Provider, o.Consumer.ID()
	if err := c.inspect(ctx); err != nil {
		return err
	}
	tenant, _, err := c.find(ctx, o.tenantAt())
	if err != nil {
		return err
	}
	if tenant == nil {
		return c.notPeered(ctx, consumer)
	}
	// The record comes first: an interrupted drain must not look like a consumer without a peering.
	if err := o.recordDrain(ctx, tenant, "true"); err != nil {
		return err
	}
	o.beginRemoval()
	if err := c.removeAll(ctx, o.bindings(tenant)); err != nil {
		return err
	}
	if err := o.deleteMaps(ctx); err != nil {
		return err
	}
	access, err := c.accessOf(ctx, consumer)
	if err != nil {
		return err
	}
	return o.sayLeft(ctx, access)
}

// Activate gives a consumer the access back that Drain has revoked. It does nothing for others.
func (o *Options) Activate(ctx context.Context) error { return progress.Ended(ctx, o.activate(ctx)) }

func (o *Options) activate(ctx context.Context) error {
	c := o.Provider
	if err := c.inspect(ctx); err != nil {
		return err
	}
	tenant, _, err := c.find(ctx, o.tenantAt())
	if err != nil || tenant == nil || !IsDrained(tenant) {
		return err
	}
	if err := c.applyAll(ctx, o.bindings(tenant)); err != nil {
		return err
	}
	return o.recordDrain(ctx, tenant, nil)
}

// IsDrained reports whether Drain has revoked the access of the consumer of a tenant namespace.
func IsDrained(tenant client.Object) bool {
	return tenant.GetAnnotations()[wire.DrainedTenantAnnotation] == "true"
}

// checkDrained refuses to admit a consumer that the administrator of the provider has drained. With an invitation nobody is admitted.
func (o *Options) checkDrained(ctx context.Context) error {
	if o.Provider.invitation != nil {
		return nil
	}
	tenant, _, err := o.Provider.find(ctx, o.tenantAt())
	if err != nil || tenant == nil || !IsDrained(tenant) {
		return err
	}
	return fmt.Errorf("cluster %s: consumer %s was drained: run refractctl activate tenant %s there first", o.Provider.Name, o.Consumer.ID(), o.Consumer.ID())
}

// recordDrain sets the annotation of the tenant namespace, or removes it if value is nil.
func (o *Options) recordDrain(ctx context.Context, tenant *metav1.PartialObjectMetadata, value any) error {
	return o.Provider.annotate(ctx, tenant, wire.DrainedTenantAnnotation, value)
}

// bindings returns the bindings of the consumer, with that for renewals if the tenant namespace has keys of its certificates.
func (o *Options) bindings(tenant *metav1.PartialObjectMetadata) []client.Object {
	all := o.access()
	if tenant.Annotations[wire.ConsumerKeysAnnotation] != "" {
		all = append(all, o.renewal()...)
	}
	return slices.DeleteFunc(all, func(object client.Object) bool {
		switch object.(type) {
		case *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
			return false
		}
		return true
	})
}

// deleteMaps deletes the NamespaceMaps of the consumer, and waits until its remote namespaces are gone.
func (o *Options) deleteMaps(ctx context.Context) error {
	c, namespace := o.Provider, wire.TenantNamespace(o.Consumer.ID())
	maps := func(ctx context.Context) ([]offloading.NamespaceMap, error) {
		all := &offloading.NamespaceMapList{}
		if err := c.Client.List(ctx, all, client.InNamespace(namespace), client.MatchingLabels{wire.ReplicatedLabel: "true"}); err != nil {
			return nil, fmt.Errorf("cluster %s: listing NamespaceMaps in namespace %s, %w", c.Name, namespace, err)
		}
		return all.Items, nil
	}
	found, err := maps(ctx)
	if err != nil {
		return err
	}
	for i := range found {
		if o.DeleteData {
			if err := c.annotate(ctx, &found[i], wire.DeleteDataAnnotation, "true"); err != nil {
				return err
			}
		}
		if err := c.Client.Delete(ctx, &found[i], client.Preconditions{UID: &found[i].UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cluster %s: deleting NamespaceMap %s, %w", c.Name, client.ObjectKeyFromObject(&found[i]), err)
		}
	}
	return o.await(ctx, "the remote namespaces of "+o.Consumer.ID(), func(ctx context.Context) (string, error) {
		left, err := maps(ctx)
		var names []string
		for i := range left {
			names = append(names, "NamespaceMap "+left[i].Name)
			for _, status := range left[i].Status.CurrentMapping {
				names = append(names, "namespace "+status.RemoteNamespace)
			}
		}
		if err != nil || len(names) == 0 {
			return "", err
		}
		slices.Sort(names)
		return "being deleted: " + strings.Join(names, ", "), nil
	})
}
