// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// Drain revokes the access of a consumer that refractctl has admitted, and deletes its remote namespaces. If deleteData
// is true, the data of their claims is deleted, too. If the consumer's Tenant is drained, the controllers revoke the
// access, and Drain waits for them. Without such a Tenant, or if the controllers do not act, Drain removes the bindings
// itself. The consumer's tenant namespace, account and Quota are kept, so that Activate can admit it again. Only the
// consumer's ID is needed; the consumer need not be accessible.
func Drain(ctx context.Context, provider *cluster.Cluster, consumer string, deleteData bool, report progress.Reporter) error {
	return progress.Ended(ctx, drain(ctx, provider, consumer, deleteData, report))
}

func drain(ctx context.Context, provider *cluster.Cluster, consumer string, deleteData bool, report progress.Reporter) error {
	side, err := provider.Inspect(ctx)
	if err != nil {
		return err
	}
	t := Tenant{Provider: side, Consumer: consumer}
	namespace, _, err := side.Find(ctx, t.NamespaceObject())
	if err != nil {
		return err
	}
	if namespace == nil {
		return side.NotPeered(ctx, consumer)
	}
	enforced, err := t.findEnforced(ctx)
	if err != nil {
		return err
	}
	if enforced != nil && enforced.Spec.TenantCondition == auth.TenantDrained {
		remaining, err := t.awaitRevoked(ctx, namespace, report)
		if err == nil {
			// The controllers also delete the remote namespaces, but they may have been stopped in the meantime.
			return t.endDrain(ctx, remaining, cluster.NewRemover(side, false), deleteData, report)
		}
		if !errors.Is(err, errNotRevoked) {
			return err
		}
		report.Report("the controller manager of cluster %s does not revoke the access of %s: removing its bindings", side.Name, consumer)
	}
	// The annotation is set first. Otherwise a consumer whose drain was interrupted would look like a consumer without
	// a peering.
	if err := side.Annotate(ctx, namespace, wire.DrainedTenantAnnotation, "true"); err != nil {
		return err
	}
	remover := cluster.NewRemover(side, false)
	if err := remover.Remove(ctx, t.bindings(namespace)...); err != nil {
		return err
	}
	if err := t.deleteMaps(ctx, deleteData, report); err != nil {
		return err
	}
	access, err := t.FindAccess(ctx, remover)
	if err != nil {
		return err
	}
	return t.ReportLeft(ctx, remover, access, report)
}

// endDrain deletes the remote namespaces of a consumer. It returns an error if the consumer still has access.
func (t Tenant) endDrain(ctx context.Context, access []*metav1.PartialObjectMetadata, remover *cluster.Remover, deleteData bool, report progress.Reporter) error {
	if err := t.deleteMaps(ctx, deleteData, report); err != nil {
		return err
	}
	return t.ReportLeft(ctx, remover, access, report)
}

// findEnforced returns the consumer's Tenant if the provider's controllers enforce it. It returns nil if there is no
// Tenant, or if the user may not list Tenants.
func (t Tenant) findEnforced(ctx context.Context) (*auth.Tenant, error) {
	tenants := &auth.TenantList{}
	err := t.Provider.Client.List(ctx, tenants, client.InNamespace(t.Namespace()))
	if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil //nolint:nilnil // as documented; an older version has none
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: listing Tenants, %w", t.Provider.Name, err)
	}
	for i := range tenants.Items {
		if tenants.Items[i].IsOfRefractctl() {
			return &tenants.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // as documented
}

// revocationTimeout limits how long the controllers may take to revoke access, which normally takes less than a
// second. If it were shorter, the command could remove the bindings itself on a busy cluster, although the
// controllers would have emptied them.
const revocationTimeout = 10 * time.Second

// errNotRevoked means that no controller enforces the Tenant of a consumer: either the controller manager is down, or
// the controller is disabled (tenants.objects).
var errNotRevoked = errors.New("the controller manager does not revoke the access")

// awaitRevoked waits until the controllers have revoked the consumer's access to its tenant namespace. It returns the
// remaining access. The consumer may still be allowed to read the health of the API server.
func (t Tenant) awaitRevoked(ctx context.Context, namespace client.Object, report progress.Reporter) (remaining []*metav1.PartialObjectMetadata, err error) {
	bindings, begun := t.bindings(namespace), time.Now()
	err = report.Await(ctx, "the access of "+t.Consumer, func(ctx context.Context) (string, error) {
		all, err := t.FindAccess(ctx, nil)
		if err != nil {
			return "", err
		}
		remaining = slices.DeleteFunc(all, func(binding *metav1.PartialObjectMetadata) bool {
			return binding.Kind == "ClusterRoleBinding" && cluster.IsOurs(binding)
		})
		for _, binding := range remaining {
			isOwn := slices.ContainsFunc(bindings, func(own client.Object) bool { return own.GetName() == binding.Name && cluster.IsOurs(binding) })
			switch {
			case binding.Namespace != namespace.GetName() || !isOwn:
			case time.Since(begun) > revocationTimeout:
				return "", errNotRevoked
			default:
				return "waiting for the controller manager to revoke " + cluster.Describe(binding), nil
			}
		}
		return "", nil
	})
	return remaining, err
}

// Activate restores the access of a consumer that was drained with Drain. It does nothing for other consumers.
func Activate(ctx context.Context, provider *cluster.Cluster, consumer string) error {
	return progress.Ended(ctx, activate(ctx, provider, consumer))
}

func activate(ctx context.Context, provider *cluster.Cluster, consumer string) error {
	side, err := provider.Inspect(ctx)
	if err != nil {
		return err
	}
	t := Tenant{Provider: side, Consumer: consumer}
	namespace, _, err := side.Find(ctx, t.NamespaceObject())
	if err != nil || namespace == nil || !IsDrained(namespace) {
		return err
	}
	if err := cluster.NewWriter(side).Apply(ctx, t.bindings(namespace)...); err != nil {
		return err
	}
	return side.Annotate(ctx, namespace, wire.DrainedTenantAnnotation, nil)
}

// IsDrained reports whether the consumer of a tenant namespace was drained with Drain.
func IsDrained(namespace client.Object) bool {
	return namespace.GetAnnotations()[wire.DrainedTenantAnnotation] == "true"
}

// wasDrained reports whether the consumer's Tenant was drained, even if the Tenant has been deleted since.
func wasDrained(namespace client.Object) bool {
	return strings.HasPrefix(namespace.GetAnnotations()[wire.TenantConditionAnnotation], string(auth.TenantDrained)+"/")
}

// RequireActive returns an error if the provider's administrator has drained the consumer. If the user has an
// invitation, it does nothing: the command then does not admit a consumer, and may not read the tenant namespace.
func (t Tenant) RequireActive(ctx context.Context) error {
	if t.Provider.IsInvited() {
		return nil
	}
	namespace, _, err := t.Provider.Find(ctx, t.NamespaceObject())
	if err != nil || namespace == nil {
		return err
	}
	enforced, err := t.findEnforced(ctx)
	if err != nil || !IsDrained(namespace) && !wasDrained(namespace) && (enforced == nil || enforced.Spec.TenantCondition != auth.TenantDrained) {
		return err
	}
	return fmt.Errorf("cluster %s: consumer %s was drained: run refractctl activate tenant %s there first", t.Provider.Name, t.Consumer, t.Consumer)
}

// deleteMaps deletes the NamespaceMaps of the consumer, and waits until the remote namespaces are gone.
func (t Tenant) deleteMaps(ctx context.Context, deleteData bool, report progress.Reporter) error {
	c := t.Provider
	found, err := t.Maps(ctx)
	if err != nil {
		return err
	}
	for i := range found {
		if deleteData {
			if err := c.Annotate(ctx, &found[i], wire.DeleteDataAnnotation, "true"); err != nil {
				return err
			}
		}
		if err := c.Client.Delete(ctx, &found[i], client.Preconditions{UID: &found[i].UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cluster %s: deleting NamespaceMap %s, %w", c.Name, client.ObjectKeyFromObject(&found[i]), err)
		}
	}
	return report.Await(ctx, "the remote namespaces of "+t.Consumer, t.describeMaps)
}

// describeMaps lists the NamespaceMaps and remote namespaces that still exist.
func (t Tenant) describeMaps(ctx context.Context) (string, error) {
	left, err := t.Maps(ctx)
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
}
