// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/cmd/refractctl/cli/peerings"
	"github.com/refract-project/refract/internal/refractctl/tenant"
)

// tenantTimeout limits how long the controllers may take to react to a change to a Tenant or a ResourceSlice. They
// normally take less than a second. Deleting remote namespaces takes longer (see DrainTimeout).
const tenantTimeout = time.Minute

// consumerCommand returns a command for a provider that calls do for each consumer in the arguments.
func consumerCommand(access *invocation.Access, command *cobra.Command, patience time.Duration, do func(ctx context.Context, c client.Client, name string, cmd *cobra.Command) error) *cobra.Command {
	var timeout time.Duration
	command.Args = cobra.MinimumNArgs(1)
	command.RunE = invocation.ExplainErrors(func(cmd *cobra.Command, names []string) error {
		c, err := access.NewClient(invocation.RequestTimeout)
		if err != nil {
			return err
		}
		_, problems := invocation.AttemptEach(names, func(name string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return do(ctx, c, name, cmd)
		})
		return problems
	})
	command.Flags().DurationVar(&timeout, "timeout", patience, "how long to wait")
	return command
}

// NewCordonTenantCommand returns the command "cordon tenant".
func NewCordonTenantCommand(access *invocation.Access) *cobra.Command {
	return consumerCommand(access, &cobra.Command{
		Use:   "tenant CONSUMER...",
		Short: "Refuse new pods of consumers",
		Long: "Refuse new pods of consumers of this cluster, and requests for more resources. Running pods are not affected. Sets\n" +
			"spec.tenantCondition of their Tenants, and cordons the Quotas of those that joined with refractctl peer.",
		Example:           "  refractctl cordon tenant rome --context=milan",
		ValidArgsFunction: access.CompletePeers,
	}, tenantTimeout, func(ctx context.Context, c client.Client, name string, cmd *cobra.Command) error {
		return limitTenant(ctx, c, name, auth.TenantCordoned, cmd)
	})
}

// NewUncordonTenantCommand returns the command "uncordon tenant".
func NewUncordonTenantCommand(access *invocation.Access) *cobra.Command {
	return consumerCommand(access, &cobra.Command{
		Use:   "tenant CONSUMER...",
		Short: "Admit new pods of consumers again",
		Long: "Admit new pods of consumers of this cluster again, after they were cordoned or drained. A drained consumer requests its remote\n" +
			"namespaces again by itself.",
		Example:           "  refractctl uncordon tenant rome --context=milan",
		ValidArgsFunction: access.CompletePeers,
	}, tenantTimeout, func(ctx context.Context, c client.Client, name string, cmd *cobra.Command) error {
		// The limit is removed before the access is restored. The controllers then create a Tenant, whose condition
		// depends on the Quota.
		if err := limitTenant(ctx, c, name, auth.TenantActive, cmd); err != nil {
			return err
		}
		return restoreAccess(ctx, access, c, name, cmd)
	})
}

// NewActivateTenantCommand returns the command that corresponds to liqoctl uncordon tenant after a drain.
func NewActivateTenantCommand(access *invocation.Access) *cobra.Command {
	command := NewUncordonTenantCommand(access)
	command.Example = "  refractctl activate tenant rome --context=milan"
	return command
}

// NewDrainTenantCommand returns the command "drain tenant".
func NewDrainTenantCommand(access *invocation.Access) *cobra.Command {
	var deleteData bool
	command := consumerCommand(access, &cobra.Command{
		Use:   "tenant CONSUMER...",
		Short: "Revoke the access of consumers, and delete their remote namespaces",
		Long: "Revoke the access of consumers of this cluster, and delete their ResourceSlices and remote namespaces, with everything in them.\n" +
			"Consumers with claims that have data are not drained without --delete-data. Their tenant namespaces stay: activate tenant admits\n" +
			"them again. To end a peering with a drained consumer, activate it before, or run delete peering-user.",
		Example:           "  refractctl drain tenant rome --context=milan",
		ValidArgsFunction: access.CompletePeers,
	}, invocation.DrainTimeout, func(ctx context.Context, c client.Client, name string, cmd *cobra.Command) error {
		tenants, err := tenantsOf(ctx, c, name)
		if err != nil {
			return err
		}
		quotas, err := quotasOf(ctx, c, name)
		if err != nil {
			return err
		}
		namespaces, admitted := sets.New[string](), len(quotas) > 0
		for i := range tenants {
			namespaces.Insert(tenants[i].Namespace)
			admitted = admitted || tenants[i].IsOfRefractctl()
		}
		if len(quotas) > 0 {
			namespaces.Insert(quotas[0].Namespace)
		}
		for _, namespace := range sets.List(namespaces) {
			if deleteData {
				break
			}
			if err := invocation.RefuseClaims(ctx, c, namespace); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		// The Quotas are cordoned first. The consumer then cannot create pods even if its access cannot be revoked.
		if err := limitTenant(ctx, c, name, auth.TenantDrained, cmd); err != nil || !admitted {
			return err
		}
		return revokeAccess(ctx, access, name, deleteData, cmd)
	})
	command.Flags().BoolVar(&deleteData, invocation.DeleteDataFlag, false, "delete the data of claims in the remote namespaces, too")
	return command
}

// revokeAccess drains a consumer that has joined with refractctl peer.
func revokeAccess(ctx context.Context, access *invocation.Access, consumer string, deleteData bool, cmd *cobra.Command) error {
	o, err := peerings.ProviderOptions(access, consumer, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	return tenant.Drain(ctx, o.Provider, consumer, deleteData, o.Progress)
}

// restoreAccess admits a consumer again after revokeAccess.
func restoreAccess(ctx context.Context, access *invocation.Access, c client.Client, consumer string, cmd *cobra.Command) error {
	namespace := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: wire.TenantNamespace(consumer)}, namespace); err != nil || !tenant.IsDrained(namespace) {
		return client.IgnoreNotFound(err)
	}
	o, err := peerings.ProviderOptions(access, consumer, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	return tenant.Activate(ctx, o.Provider, consumer)
}

// limitTenant sets the condition of a consumer's Tenants, cordons or uncordons its Quotas, and waits until the
// controllers have enforced the condition.
func limitTenant(ctx context.Context, c client.Client, consumer string, limit auth.TenantCondition, cmd *cobra.Command) error {
	tenants, err := tenantsOf(ctx, c, consumer)
	if err != nil {
		return err
	}
	quotas, err := quotasOf(ctx, c, consumer)
	if err != nil {
		return err
	}
	forgotten := false
	if limit == auth.TenantActive {
		if forgotten, err = forgetCondition(ctx, c, consumer, tenants); err != nil {
			return err
		}
	}
	if len(tenants) == 0 && len(quotas) == 0 && !forgotten {
		return fmt.Errorf("consumer %s has neither a Tenant nor a Quota of its own in this cluster, which has %s: check the cluster id, and that Quotas are enforced (controllerManager.config.enableResourceEnforcement)", consumer, describeConsumers(ctx, c))
	}
	for i := range quotas {
		if err := invocation.PatchTo(ctx, c, &quotas[i], cordonOf(&quotas[i], tenants, limit != auth.TenantActive)); err != nil {
			return err
		}
		invocation.ResultOf(cmd).AddObject("", "Quota", quotas[i].Namespace, quotas[i].Name)
	}
	for i := range tenants {
		if err := invocation.PatchTo(ctx, c, &tenants[i], map[string]any{"spec": map[string]any{"tenantCondition": limit}}); err != nil {
			return err
		}
	}
	for i := range tenants {
		// If refractctl has admitted the consumer, revokeAccess waits for the controllers. If no controller revokes the
		// access, revokeAccess does.
		if !tenants[i].IsOfRefractctl() || limit != auth.TenantDrained {
			if err := awaitTenant(ctx, c, &tenants[i], limit, cmd); err != nil {
				return err
			}
		}
		invocation.ResultOf(cmd).AddObject("", auth.TenantKind, tenants[i].Namespace, tenants[i].Name)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", consumer, map[auth.TenantCondition]string{auth.TenantCordoned: "cordoned", auth.TenantActive: "uncordoned", auth.TenantDrained: "drained"}[limit])
	return nil
}

// forgetCondition removes the recorded condition of a consumer's deleted Tenant from the tenant namespace. It reports
// whether there was a record.
func forgetCondition(ctx context.Context, c client.Client, consumer string, tenants []auth.Tenant) (found bool, err error) {
	namespaces := sets.New(wire.TenantNamespace(consumer))
	for i := range tenants {
		namespaces.Insert(tenants[i].Namespace)
	}
	for _, name := range sets.List(namespaces) {
		namespace := &corev1.Namespace{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, namespace); client.IgnoreNotFound(err) != nil {
			return found, fmt.Errorf("getting Namespace %s, %w", name, err)
		}
		if namespace.Annotations[wire.TenantConditionAnnotation] == "" {
			continue
		}
		found = true
		if err := invocation.PatchTo(ctx, c, namespace, map[string]any{"metadata": map[string]any{"annotations": map[string]any{wire.TenantConditionAnnotation: nil}}}); err != nil {
			return found, err
		}
	}
	return found, nil
}

// cordonOf returns the patch that cordons or uncordons a Quota. Because of the annotation, the controllers uncordon
// the Quota when the Tenant becomes Active.
func cordonOf(quota *offloading.Quota, tenants []auth.Tenant, cordoned bool) map[string]any {
	fields := map[string]any{"spec": map[string]any{"cordoned": cordoned}}
	enforced := slices.ContainsFunc(tenants, func(tenant auth.Tenant) bool { return tenant.IsOfRefractctl() })
	switch {
	case !cordoned:
		fields["metadata"] = map[string]any{"annotations": map[string]any{wire.CordonTenantAnnotation: nil}}
	case enforced && !ptr.Deref(quota.Spec.Cordoned, false):
		fields["metadata"] = map[string]any{"annotations": map[string]any{wire.CordonTenantAnnotation: "true"}}
	}
	return fields
}

// tenantsOf returns the Tenants of a consumer that are not being deleted.
func tenantsOf(ctx context.Context, c client.Client, consumer string) ([]auth.Tenant, error) {
	all := &auth.TenantList{}
	if err := invocation.FillLists(ctx, c, all); err != nil && !missingKind(err) {
		return nil, err
	}
	return slices.DeleteFunc(all.Items, func(tenant auth.Tenant) bool {
		return string(tenant.Spec.ClusterID) != consumer || tenant.DeletionTimestamp != nil
	}), nil
}

// describeConsumers lists the consumers of the cluster that the commands for tenants accept.
func describeConsumers(ctx context.Context, c client.Client) string {
	tenants, quotas, ids := &auth.TenantList{}, &offloading.QuotaList{}, sets.New[string]()
	if err := c.List(ctx, tenants); err != nil && !missingKind(err) {
		return "unknown consumers"
	}
	if err := c.List(ctx, quotas); err != nil && !missingKind(err) {
		return "unknown consumers"
	}
	for i := range tenants.Items {
		if tenants.Items[i].DeletionTimestamp == nil {
			ids.Insert(string(tenants.Items[i].Spec.ClusterID))
		}
	}
	for i := range quotas.Items {
		if user := quotas.Items[i].Spec.User; quotas.Items[i].Namespace == wire.TenantNamespace(user) {
			ids.Insert(user)
		}
	}
	if len(ids) == 0 {
		return "no consumers"
	}
	return "the consumers " + strings.Join(sets.List(ids), ", ")
}

// quotasOf returns the Quotas of a consumer that has joined with refractctl.
func quotasOf(ctx context.Context, c client.Client, consumer string) ([]offloading.Quota, error) {
	all := &offloading.QuotaList{}
	if err := c.List(ctx, all, client.InNamespace(wire.TenantNamespace(consumer))); err != nil {
		return nil, fmt.Errorf("listing Quotas in namespace %s, %w", wire.TenantNamespace(consumer), err)
	}
	return slices.DeleteFunc(all.Items, func(quota offloading.Quota) bool { return quota.Spec.User != consumer }), nil
}

// missingKind reports whether err means that the cluster lacks the CRD. Not every installation has the CRDs of
// Tenants and ResourceSlices.
func missingKind(err error) bool { return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// awaitTenant waits until the consumer's requests match the condition of the Tenant.
func awaitTenant(ctx context.Context, c client.Client, tenant *auth.Tenant, limit auth.TenantCondition, cmd *cobra.Command) error {
	return invocation.AwaitOne(ctx, cmd.ErrOrStderr(), "tenant", string(tenant.Spec.ClusterID), timeoutOf(cmd), func(ctx context.Context) (bool, string, error) {
		requests, maps := &auth.ResourceSliceList{}, &offloading.NamespaceMapList{}
		for _, one := range []client.ObjectList{requests, maps} {
			if err := c.List(ctx, one, client.InNamespace(tenant.Namespace), client.MatchingLabels{wire.ReplicatedLabel: "true"}); err != nil {
				return false, "", fmt.Errorf("listing %s in namespace %s, %w", invocation.KindsOf(one), tenant.Namespace, err)
			}
		}
		if tenant.IsOfRefractctl() {
			if enforced, err := isEnforced(ctx, c, tenant, limit); err != nil || !enforced {
				return false, invocation.NoController, err
			}
			requests.Items = nil // the slices stay, because the consumer cannot recreate them
		}
		if limit == auth.TenantDrained {
			return drainedTenant(requests.Items, maps.Items)
		}
		for i := range requests.Items {
			_, marked := requests.Items[i].Annotations[wire.CordonTenantAnnotation]
			if len(requests.Items[i].Spec.CSR) > 0 && marked != (limit == auth.TenantCordoned) {
				return false, invocation.NoController, nil
			}
		}
		return true, "its ResourceSlices follow", nil
	})
}

// isEnforced reports whether the access and the Quota of a consumer match its Tenant. It is for consumers that
// refractctl has admitted.
func isEnforced(ctx context.Context, c client.Client, tenant *auth.Tenant, limit auth.TenantCondition) (bool, error) {
	bindings := &rbacv1.RoleBindingList{}
	if err := c.List(ctx, bindings, client.InNamespace(tenant.Namespace)); err != nil {
		return false, fmt.Errorf("listing RoleBindings in namespace %s, %w", tenant.Namespace, err)
	}
	for i := range bindings.Items {
		isOwned := slices.ContainsFunc(bindings.Items[i].OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == tenant.UID })
		if isOwned && (len(bindings.Items[i].Subjects) == 0) != (limit == auth.TenantDrained) {
			return false, nil
		}
	}
	quotas, err := quotasOf(ctx, c, string(tenant.Spec.ClusterID))
	return err == nil && !slices.ContainsFunc(quotas, func(quota offloading.Quota) bool {
		return ptr.Deref(quota.Spec.Cordoned, false) != (limit != auth.TenantActive)
	}), err
}

// drainedTenant reports whether all ResourceSlices and NamespaceMaps of a consumer are gone, and describes the
// remaining ones.
func drainedTenant(requests []auth.ResourceSlice, maps []offloading.NamespaceMap) (bool, string, error) {
	var left []string
	begun := true
	for i := range requests {
		left = append(left, "ResourceSlice "+requests[i].Name)
		begun = begun && requests[i].DeletionTimestamp != nil
	}
	for i := range maps {
		begun = begun && maps[i].DeletionTimestamp != nil
		for _, status := range maps[i].Status.CurrentMapping {
			left = append(left, "namespace "+status.RemoteNamespace)
		}
		if len(maps[i].Status.CurrentMapping) == 0 {
			left = append(left, "NamespaceMap "+maps[i].Name)
		}
	}
	switch {
	case len(left) == 0:
		return true, "its access is revoked, and its remote namespaces are deleted", nil
	case !begun:
		return false, invocation.NoController, nil
	}
	slices.Sort(left)
	return false, "being deleted: " + strings.Join(left, ", "), nil
}

// timeoutOf returns the value of the flag --timeout.
func timeoutOf(cmd *cobra.Command) time.Duration {
	timeout, err := cmd.Flags().GetDuration("timeout")
	if err != nil {
		return 0
	}
	return timeout
}

// NewCordonResourceSliceCommand returns the command "cordon resourceslice".
func NewCordonResourceSliceCommand(access *invocation.Access) *cobra.Command {
	return resourceSliceCommand(access, true, &cobra.Command{
		Short: "Refuse new pods of ResourceSlices",
		Long: "Refuse new pods of ResourceSlices, at the provider: each is the share of one virtual node of a consumer that runs Liqo. Running pods are not\n" +
			"affected. A ResourceSlice that the consumer creates again, or in addition, is cordoned as well. --namespace names the tenant namespace if several consumers have a ResourceSlice of that name.",
		Example: "  refractctl cordon resourceslice milan --context=milan --namespace=liqo-tenant-rome",
	})
}

// NewUncordonResourceSliceCommand returns the command "uncordon resourceslice".
func NewUncordonResourceSliceCommand(access *invocation.Access) *cobra.Command {
	return resourceSliceCommand(access, false, &cobra.Command{
		Short:   "Admit new pods of ResourceSlices again",
		Example: "  refractctl uncordon resourceslice milan --context=milan",
	})
}

func resourceSliceCommand(access *invocation.Access, cordon bool, command *cobra.Command) *cobra.Command {
	command.Use = "resourceslice NAME..."
	command.Aliases = []string{"resourceslices", "rs"}
	var consumer string
	command.Flags().StringVar(&consumer, "remote-cluster-id", "", "cluster id of the consumer, in place of --namespace")
	return consumerCommand(access, command, tenantTimeout, func(ctx context.Context, c client.Client, name string, cmd *cobra.Command) error {
		namespace := access.NamespaceFlag()
		if consumer != "" {
			namespace = wire.TenantNamespace(consumer)
		}
		slice, err := findResourceSlice(ctx, c, namespace, name)
		if err != nil && !cordon {
			if done, problem := removeCordon(ctx, c, namespace, name, cmd); done || problem != nil {
				return problem
			}
		}
		if err != nil {
			return err
		}
		var value any // null removes the annotation
		if cordon {
			value = "true"
		}
		if err := invocation.PatchTo(ctx, c, slice, map[string]any{"metadata": map[string]any{"annotations": map[string]any{wire.CordonAnnotation: value}}}); err != nil {
			return err
		}
		if _, byTenant := slice.Annotations[wire.CordonTenantAnnotation]; byTenant && !cordon {
			consumer := ptr.Deref(slice.Spec.ConsumerClusterID, "")
			return fmt.Errorf("ResourceSlice %s stays cordoned, because consumer %s is: run refractctl uncordon tenant %s", client.ObjectKeyFromObject(slice), consumer, consumer)
		}
		if err := awaitQuota(ctx, c, slice, cordon, cmd); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", name, map[bool]string{true: "cordoned", false: "uncordoned"}[cordon])
		invocation.ResultOf(cmd).AddObject("", auth.ResourceSliceKind, slice.Namespace, slice.Name)
		return nil
	})
}

// findResourceSlice returns a ResourceSlice of a consumer. If namespace is empty, it searches all tenant namespaces.
func findResourceSlice(ctx context.Context, c client.Client, namespace, name string) (*auth.ResourceSlice, error) {
	all := &auth.ResourceSliceList{}
	if err := c.List(ctx, all, client.InNamespace(namespace)); err != nil && !missingKind(err) {
		return nil, fmt.Errorf("listing ResourceSlices, %w", err)
	}
	found := slices.DeleteFunc(all.Items, func(slice auth.ResourceSlice) bool { return slice.Name != name })
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("there is no ResourceSlice %s in %s: list them with kubectl get resourceslices --all-namespaces", name, cmp.Or(namespace, "any namespace"))
	case len(found) > 1:
		return nil, fmt.Errorf("namespaces %s and %s have a ResourceSlice %s: set --namespace", found[0].Namespace, found[1].Namespace, name)
	case found[0].Labels[wire.NegotiateLabel] == "true":
		return nil, fmt.Errorf("ResourceSlice %s only negotiates what a virtual node offers, and has no Quota: cordon its consumer, refractctl cordon tenant %s", client.ObjectKeyFromObject(&found[0]), ptr.Deref(found[0].Spec.ConsumerClusterID, "CONSUMER"))
	case found[0].Labels[wire.ReplicatedLabel] != "true":
		return nil, fmt.Errorf("ResourceSlice %s is a request of this cluster: cordon it at its provider, or the virtual node here with refractctl cordon virtualnode", client.ObjectKeyFromObject(&found[0]))
	}
	return &found[0], nil
}

// removeCordon deletes the Quota that stays after a cordoned ResourceSlice was deleted. It reports whether such a Quota
// existed.
func removeCordon(ctx context.Context, c client.Client, namespace, name string, cmd *cobra.Command) (bool, error) {
	quotas, namespaces := &offloading.QuotaList{}, &corev1.NamespaceList{}
	if err := c.List(ctx, quotas, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("listing Quotas, %w", err)
	}
	if err := c.List(ctx, namespaces, client.HasLabels{wire.RemoteClusterIDLabel}); err != nil {
		return false, fmt.Errorf("listing tenant namespaces, %w", err)
	}
	found := slices.DeleteFunc(quotas.Items, func(quota offloading.Quota) bool {
		return quota.Annotations[wire.CordonedSliceAnnotation] == "" || !slices.ContainsFunc(namespaces.Items, func(n corev1.Namespace) bool {
			return n.Name == quota.Namespace && quota.Name == auth.ResourceSliceUser(name, n.Labels[wire.RemoteClusterIDLabel])
		})
	})
	switch len(found) {
	case 0:
		return false, nil
	case 1:
	default:
		return true, fmt.Errorf("namespaces %s and %s have the Quota of a cordoned ResourceSlice %s: set --namespace", found[0].Namespace, found[1].Namespace, name)
	}
	if err := c.Delete(ctx, &found[0]); client.IgnoreNotFound(err) != nil {
		return true, fmt.Errorf("deleting Quota %s, %w", client.ObjectKeyFromObject(&found[0]), err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: uncordoned; there is no ResourceSlice of this name now\n", name)
	invocation.ResultOf(cmd).AddObject("", "Quota", found[0].Namespace, found[0].Name)
	return true, nil
}

// awaitQuota waits until the Quota of a ResourceSlice exists and is cordoned or, if cordon is false, not cordoned. It
// does not wait for a ResourceSlice that was not accepted.
func awaitQuota(ctx context.Context, c client.Client, slice *auth.ResourceSlice, cordon bool, cmd *cobra.Command) error {
	key := client.ObjectKey{Namespace: slice.Namespace, Name: auth.ResourceSliceUser(slice.Name, string(ptr.Deref(slice.Spec.ConsumerClusterID, "")))}
	// If the ResourceSlice is denied, its Quota stays cordoned or does not exist.
	if slice.Status.Decision(auth.ResourcesCondition) != auth.ResourceSliceAccepted {
		return nil
	}
	return invocation.AwaitOne(ctx, cmd.ErrOrStderr(), "resourceslice", slice.Name, timeoutOf(cmd), func(ctx context.Context) (bool, string, error) {
		quota := &offloading.Quota{}
		switch err := c.Get(ctx, key, quota); {
		case apierrors.IsNotFound(err):
			return false, fmt.Sprintf("there is no Quota %s, by which it would be enforced: set authentication.enabled, or adoptLiqo beside Liqo, in the values of this cluster", key), nil
		case err != nil:
			return false, "", fmt.Errorf("getting Quota %s, %w", key, err)
		case ptr.Deref(quota.Spec.Cordoned, false) != cordon:
			return false, invocation.NoController, nil
		}
		return true, "its Quota follows", nil
	})
}
