// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
)

// Drain revokes the access of a consumer that refractctl has admitted, and deletes its remote namespaces. The data of
// their claims is deleted too if DeleteData is set. If the consumer has a Tenant, which the caller has drained, the
// controllers revoke the access, and Drain waits for them. The tenant namespace, the account and the Quota of the
// consumer stay, so that Activate can admit it again. Only the ID of the consumer has to be known.
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
	enforced, err := o.tenantOfConsumer(ctx)
	if err != nil {
		return err
	}
	if enforced != nil && enforced.Spec.TenantCondition == auth.TenantDrained {
		err := o.awaitRevoked(ctx, tenant)
		if !errors.Is(err, errNotRevoked) {
			return err
		}
		o.say("the controller manager of cluster %s does not revoke the access of %s: removing its bindings", c.Name, consumer)
	}
	// The annotation is set first: an interrupted drain must not look like a consumer without a peering.
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

// tenantOfConsumer returns the Tenant that the controllers of the provider use to drain and activate the consumer. It
// is nil if the Tenant does not exist, or may not be listed.
func (o *Options) tenantOfConsumer(ctx context.Context) (*auth.Tenant, error) {
	tenants := &auth.TenantList{}
	err := o.Provider.Client.List(ctx, tenants, client.InNamespace(wire.TenantNamespace(o.Consumer.ID())))
	if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil //nolint:nilnil // as documented; an older version has none
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: listing Tenants, %w", o.Provider.Name, err)
	}
	for i := range tenants.Items {
		if tenants.Items[i].IsOfRefractctl() {
			return &tenants.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // as documented
}

// controllerPatience is how long the controllers may take to revoke an access, which takes them less than a second.
const controllerPatience = 10 * time.Second

// errNotRevoked is that nothing enforces the Tenant of a consumer: the controller manager is down, or has no such controller (tenants.objects).
var errNotRevoked = errors.New("the controller manager does not revoke the access")

// awaitRevoked waits until the controllers have removed the remote namespaces of a consumer and its access to its
// tenant namespace. The consumer may still read the health of the API server.
func (o *Options) awaitRevoked(ctx context.Context, tenant *metav1.PartialObjectMetadata) error {
	c := o.Provider
	o.beginRemoval()
	bindings, begun := o.bindings(tenant), time.Now()
	var access []*metav1.PartialObjectMetadata
	err := o.await(ctx, "the access of "+o.Consumer.ID(), func(ctx context.Context) (string, error) {
		all, err := c.accessOf(ctx, o.Consumer.ID())
		if err != nil {
			return "", err
		}
		access = slices.DeleteFunc(all, func(binding *metav1.PartialObjectMetadata) bool {
			return binding.Kind == "ClusterRoleBinding" && IsOurs(binding)
		})
		for _, binding := range access {
			if binding.Namespace == tenant.Name && slices.ContainsFunc(bindings, func(own client.Object) bool { return own.GetName() == binding.Name && IsOurs(binding) }) {
				if time.Since(begun) > controllerPatience {
					return "", errNotRevoked
				}
				return "waiting for the controller manager to revoke " + describe(binding), nil
			}
		}
		return "", nil
	})
	if err == nil {
		err = o.deleteMaps(ctx) // as the controllers do, which may have ended meanwhile
	}
	if err != nil {
		return err
	}
	return o.sayLeft(ctx, access)
}

// Activate restores the access of a consumer that Drain has revoked. It does nothing for other consumers.
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

// checkDrained refuses to admit a consumer that the administrator of the provider has drained. A run with an
// invitation admits nobody.
func (o *Options) checkDrained(ctx context.Context) error {
	if o.Provider.invitation != nil {
		return nil
	}
	tenant, _, err := o.Provider.find(ctx, o.tenantAt())
	if err != nil || tenant == nil {
		return err
	}
	enforced, err := o.tenantOfConsumer(ctx)
	if err != nil || !IsDrained(tenant) && (enforced == nil || enforced.Spec.TenantCondition != auth.TenantDrained) {
		return err
	}
	return fmt.Errorf("cluster %s: consumer %s was drained: run refractctl activate tenant %s there first", o.Provider.Name, o.Consumer.ID(), o.Consumer.ID())
}

// recordDrain sets the drain annotation of the tenant namespace, or removes it if value is nil.
func (o *Options) recordDrain(ctx context.Context, tenant *metav1.PartialObjectMetadata, value any) error {
	return o.Provider.annotate(ctx, tenant, wire.DrainedTenantAnnotation, value)
}

// bindings returns the bindings of the consumer. The binding for certificate renewals is included if the tenant
// namespace records keys of the consumer's certificates.
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

// maps returns the NamespaceMaps of the consumer.
func (o *Options) maps(ctx context.Context) ([]offloading.NamespaceMap, error) {
	c, namespace := o.Provider, wire.TenantNamespace(o.Consumer.ID())
	all := &offloading.NamespaceMapList{}
	if err := c.Client.List(ctx, all, client.InNamespace(namespace), client.MatchingLabels{wire.ReplicatedLabel: "true"}); err != nil {
		return nil, fmt.Errorf("cluster %s: listing NamespaceMaps in namespace %s, %w", c.Name, namespace, err)
	}
	return all.Items, nil
}

// deleteMaps deletes the NamespaceMaps of the consumer, and waits until its remote namespaces are gone.
func (o *Options) deleteMaps(ctx context.Context) error {
	c := o.Provider
	found, err := o.maps(ctx)
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
	return o.awaitMapsGone(ctx)
}

// awaitMapsGone waits until the remote namespaces of the consumer are gone.
func (o *Options) awaitMapsGone(ctx context.Context) error {
	return o.await(ctx, "the remote namespaces of "+o.Consumer.ID(), func(ctx context.Context) (string, error) {
		left, err := o.maps(ctx)
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
