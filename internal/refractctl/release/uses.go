// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
)

// InUseError lists the objects that would be orphaned without the controllers, and the user objects that would be
// deleted with the CRDs.
type InUseError struct{ Uses []string }

func (e *InUseError) Error() string {
	return "the installation is still in use:\n  " + strings.Join(e.Uses, "\n  ")
}

// use is a kind whose objects count as in use, because they need the controllers or their CRD. remedy returns the
// instructions to remove such an object.
type use struct {
	kind   schema.GroupVersionKind
	remedy func(object client.Object) string
}

var (
	// offloaded lists the kinds whose objects need the controllers of both clusters.
	offloaded = []use{
		{offloading.GroupVersion.WithKind(offloading.NamespaceOffloadingKind), func(o client.Object) string {
			return "unoffload it with: refractctl unoffload namespace " + o.GetNamespace()
		}},
		{offloading.GroupVersion.WithKind(offloading.VirtualNodeKind), func(o client.Object) string {
			return "remove it with refractctl unpeer, or with: refractctl delete virtualnode " + o.GetName()
		}},
		{offloading.GroupVersion.WithKind(offloading.NamespaceMapKind), func(client.Object) string {
			return "namespaces are offloaded to or from a peer: end the peering with refractctl unpeer"
		}},
		{offloading.GroupVersion.WithKind(offloading.ShadowPodKind), func(client.Object) string {
			return "a consumer runs pods here: end its peering with refractctl unpeer"
		}},
	}
	// requested lists the kinds whose objects need the controllers of a provider. If Liqo is installed, its controllers
	// reconcile these objects instead.
	requested = []use{
		{auth.GroupVersion.WithKind(auth.ResourceSliceKind), func(o client.Object) string {
			// A consumer that runs Liqo has created this slice.
			if o.GetLabels()[wire.ReplicatedLabel] == "true" {
				return fmt.Sprintf("cluster %s is a consumer of this one: delete the ResourceSlice there, and end the peering with liqoctl unauthenticate", peerOf(o.GetNamespace()))
			}
			if o.GetLabels()[wire.ReplicationLabel] == "true" {
				return fmt.Sprintf("it was sent to provider %s, where its copy has to be deleted: run refractctl delete resourceslice %s, or end the peering with liqoctl unpeer", peerOf(o.GetNamespace()), o.GetName())
			}
			return fmt.Sprintf("cluster %s is a consumer of this one: %s", peerOf(o.GetNamespace()), endConsumer(o.GetNamespace()))
		}},
		{auth.GroupVersion.WithKind(auth.TenantKind), func(o client.Object) string {
			if o.GetLabels()[wire.AdmittedByLabel] == wire.AdmittedByRefractctl {
				return fmt.Sprintf("cluster %s is a consumer of this one: %s", peerOf(o.GetNamespace()), endConsumer(o.GetNamespace()))
			}
			return fmt.Sprintf("cluster %s is a consumer of this one: end the peering there with liqoctl unauthenticate, or revoke its access by setting spec.tenantCondition to Drained, and delete the Tenant", peerOf(o.GetNamespace()))
		}},
	}
	// written lists the kinds whose objects are written by users. These objects can be deleted without a controller,
	// but they would be deleted together with the CRDs.
	written = []use{
		{plugins.GroupVersion.WithKind(plugins.ReflectedResourceKind), func(o client.Object) string {
			return "it would be deleted with its CRD: save it if you need it, and delete it with: kubectl delete reflectedresource " + o.GetName()
		}},
		{plugins.GroupVersion.WithKind(plugins.ReflectionPluginKind), func(o client.Object) string {
			return "it would be deleted with its CRD: save it if you need it, and delete it with: kubectl delete reflectionplugin " + o.GetName()
		}},
		{networking.GroupVersion.WithKind(networking.WgGatewayServerTemplateKind), func(o client.Object) string {
			return fmt.Sprintf("it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n %s delete wggatewayservertemplate %s", o.GetNamespace(), o.GetName())
		}},
		{networking.GroupVersion.WithKind(networking.WgGatewayClientTemplateKind), func(o client.Object) string {
			return fmt.Sprintf("it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n %s delete wggatewayclienttemplate %s", o.GetNamespace(), o.GetName())
		}},
		{plugins.GroupVersion.WithKind(plugins.PeerNetworkKind), func(o client.Object) string {
			return fmt.Sprintf("it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n %s delete peernetwork %s", o.GetNamespace(), o.GetName())
		}},
		{offloading.GroupVersion.WithKind("VkOptionsTemplate"), func(o client.Object) string {
			return fmt.Sprintf("it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n %s delete vkoptionstemplate %s", o.GetNamespace(), o.GetName())
		}},
		{offloading.GroupVersion.WithKind("Quota"), func(o client.Object) string {
			return fmt.Sprintf("it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n %s delete quota.offloading.liqo.io %s", o.GetNamespace(), o.GetName())
		}},
	}
)

// peerOf returns the cluster ID in the name of a tenant namespace.
func peerOf(tenant string) string { return strings.TrimPrefix(tenant, wire.TenantNamespacePrefix) }

// endConsumer returns the instructions to end the peering with the consumer of a tenant namespace.
func endConsumer(tenant string) string {
	return "end the peering there with refractctl unpeer, or revoke its access here with: refractctl delete peering-user " + peerOf(tenant)
}

// checkUnused fails if there are objects that need the controllers or, if the CRDs are to be removed, objects that
// need the CRDs.
func (i *Installer) checkUnused(ctx context.Context, withCRDs bool) error {
	liqo, err := i.crdExists(ctx, LiqoDefinition)
	if err != nil {
		return err
	}
	controlled := slices.Clone(offloaded)
	if !liqo {
		controlled = append(controlled, requested...)
	}
	found := &listing{named: sets.New[string]()}
	if err := i.findUses(ctx, found, controlled, func(client.Object) bool { return false }); err != nil {
		return err
	}
	if err := i.findPeerings(ctx, found); err != nil {
		return err
	}
	// Liqo's CRDs are kept.
	if withCRDs && !liqo {
		// PeerNetworks and Quotas of a listed peering do not count, because they are deleted with the peering. Objects
		// of the chart do not count, because they are deleted with the release.
		// Networks of a Configuration do not count, because they are deleted with it.
		ofNetwork, err := i.listNetworkUses(ctx)
		if err != nil {
			return err
		}
		peerings := found.named.Clone()
		if err := i.findUses(ctx, found, append(slices.Clone(written), ofNetwork...), func(o client.Object) bool {
			return peerings.Has(o.GetNamespace()) || o.GetLabels()[InstanceLabel] == i.Name || metav1.GetControllerOf(o) != nil
		}); err != nil {
			return err
		}
	}
	if len(found.uses) > 0 {
		return &InUseError{Uses: found.uses}
	}
	return nil
}

// listing contains the descriptions of the objects in use, and the namespaces of these objects.
type listing struct {
	uses  []string
	named sets.Set[string]
}

// mostShown is the maximum number of objects of a kind that are listed.
const mostShown = 5

func (l *listing) addObjects(kind string, objects []client.Object, remedy func(client.Object) string) {
	for n, object := range objects {
		if namespace := object.GetNamespace(); namespace != "" {
			l.named.Insert(namespace)
		}
		if n < mostShown {
			l.uses = append(l.uses, fmt.Sprintf("%s %s: %s", kind, strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/"), remedy(object)))
		}
	}
	if more := len(objects) - mostShown; more > 0 {
		l.uses = append(l.uses, fmt.Sprintf("and %d more of kind %s", more, kind))
	}
}

// findUses adds the objects of the given kinds to the listing, unless skipped returns true for them.
func (i *Installer) findUses(ctx context.Context, found *listing, uses []use, skipped func(client.Object) bool) error {
	for _, use := range uses {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(use.kind.GroupVersion().WithKind(use.kind.Kind + "List"))
		err := i.Client.List(ctx, list)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %ss, %w", use.kind.Kind, err)
		}
		var objects []client.Object
		for n := range list.Items {
			if object := &list.Items[n]; !skipped(object) {
				objects = append(objects, object)
			}
		}
		found.addObjects(use.kind.Kind, objects, use.remedy)
	}
	return nil
}

// findPeerings adds the tenant namespaces of peerings that refractctl has created if they contain no other listed
// objects. Examples are the tenant namespace of a consumer without offloaded namespaces, or of a provider without a
// virtual node. Tenant namespaces without any access do not count, because Liqo does not delete them.
func (i *Installer) findPeerings(ctx context.Context, found *listing) error {
	tenants := &corev1.NamespaceList{}
	if err := i.Client.List(ctx, tenants, client.MatchingLabels{wire.TenantNamespaceLabel: "true"}); err != nil {
		return fmt.Errorf("listing the tenant namespaces, %w", err)
	}
	var joined []client.Object
	admitted := sets.New[string]()
	for n := range tenants.Items {
		tenant := &tenants.Items[n]
		if tenant.DeletionTimestamp != nil || found.named.Has(tenant.Name) {
			continue
		}
		bindings := &rbacv1.RoleBindingList{}
		if err := i.Client.List(ctx, bindings, client.InNamespace(tenant.Name), client.MatchingLabels{ManagedByLabel: ManagedBy}); err != nil {
			return fmt.Errorf("listing the RoleBindings of namespace %s, %w", tenant.Name, err)
		}
		if len(bindings.Items) == 0 && tenant.Labels[ManagedByLabel] != ManagedBy {
			continue
		}
		joined = append(joined, tenant)
		found.named.Insert(tenant.Name)
		if slices.ContainsFunc(bindings.Items, func(b rbacv1.RoleBinding) bool {
			return strings.HasSuffix(b.RoleRef.Name, "-"+rbac.RemoteControlPlane().Name)
		}) {
			admitted.Insert(tenant.Name)
		}
	}
	found.addObjects("Namespace", joined, func(tenant client.Object) string {
		peer := peerOf(tenant.GetName())
		if admitted.Has(tenant.GetName()) {
			return fmt.Sprintf("cluster %s is admitted as a consumer: %s", peer, endConsumer(tenant.GetName()))
		}
		return fmt.Sprintf("a peering with cluster %s is left: end it with refractctl unpeer --remote-context=CONTEXT, or, if that cluster is gone for good, with: refractctl unpeer %s --force", peer, peer)
	})
	return nil
}
