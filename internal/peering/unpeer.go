// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/rbac"
)

// Unpeer drains and removes the virtual nodes of the provider, then everything that Peer created on both sides. It
// may be called again after it was interrupted.
func (o *Options) Unpeer(ctx context.Context) error { return progress.Ended(ctx, o.unpeer(ctx)) }

func (o *Options) unpeer(ctx context.Context) error {
	if err := o.Consumer.inspect(ctx); err != nil {
		return err
	}
	err := o.Provider.inspectAsProvider(ctx)
	if ended := (*invitationEndedError)(nil); errors.As(err, &ended) {
		err = o.resume(ctx, ended)
	}
	if err != nil {
		return err
	}
	o.complete()
	if err := errors.Join(o.checkSides(ctx), o.checkPeers(ctx), o.removalRights(ctx)); err != nil {
		return err
	}
	nodes, err := o.virtualNodes(ctx)
	if err != nil {
		return err
	}
	if err := o.checkData(ctx, nodes); err != nil {
		return err
	}
	o.beginRemoval()
	if err := o.removeNodes(ctx, nodes); err != nil {
		return err
	}
	unused := o.unused
	if o.DryRun && len(nodes) > 0 {
		unused = o.noteRemoteNamespaces
	}
	if err := unused(ctx); err != nil {
		return err
	}
	// Kubernetes takes seconds to remove a namespace, so the namespaces of both clusters are deleted at the same time.
	atConsumer, err := o.leaveConsumer(ctx)
	if err != nil {
		return err
	}
	atProvider, problem := o.leaveProvider(ctx)
	err = atConsumer(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // both failed for the same reason
	case err != nil || problem != nil:
		return errors.Join(problem, err)
	}
	return o.end(ctx, atProvider)
}

// noteRemoteNamespaces records, in a dry run, the remote namespaces that are deleted with the last virtual node:
// namespaces without claims, or all of them with DeleteData. With an invitation their contents cannot be read.
func (o *Options) noteRemoteNamespaces(ctx context.Context) error {
	names, err := o.remoteNamespaces(ctx)
	if err != nil {
		return err
	}
	kind := corev1.SchemeGroupVersion.WithKind("Namespace")
	for _, name := range names {
		claims := &corev1.PersistentVolumeClaimList{}
		if err := o.Provider.Client.List(ctx, claims, client.InNamespace(name), client.Limit(1)); err != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("cluster %s: listing PersistentVolumeClaims of namespace %s, %w", o.Provider.Name, name, err)
		}
		if len(claims.Items) > 0 && !o.DeleteData {
			o.Provider.noteLeft(kind, "", name)
			continue
		}
		found := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		found.SetGroupVersionKind(kind)
		o.Provider.noteRemoved(found)
		if err := o.Provider.noteAll(ctx, client.InNamespace(name)); err != nil {
			return err
		}
	}
	return nil
}

// leaving waits for the removals that a cluster has begun, and completes them.
type leaving func(ctx context.Context) error

// end completes a removal. A dry run then lists the removed objects.
func (o *Options) end(ctx context.Context, leaving leaving) error {
	if err := leaving(ctx); err != nil || !o.DryRun {
		return err
	}
	o.sayRemovals()
	return nil
}

// noWait is the leaving function of a cluster without objects to remove.
func noWait(context.Context) error { return nil }

// removeNodes drains and removes virtual nodes, together with their own objects.
func (o *Options) removeNodes(ctx context.Context, nodes []offloading.VirtualNode) error {
	for i := range nodes {
		if err := o.removeNode(ctx, &nodes[i]); err != nil {
			return err
		}
		o.VirtualNode = nodes[i].Name
		if err := o.Consumer.removeAll(ctx, o.ofNode()); err != nil {
			return err
		}
		if err := o.Consumer.removeLeases(ctx, o.Provider.ID(), o.VirtualNode); err != nil {
			return err
		}
		if err := o.Consumer.noteAll(ctx, client.MatchingLabels{wire.VirtualNodeLabel: o.VirtualNode}); err != nil {
			return err
		}
	}
	// The virtual nodes of the provider have elected a leader with this Lease.
	return o.Consumer.removeLeases(ctx, o.Provider.ID(), wire.SharedLease)
}

// GiveUp ends a peering with a provider that is lost for good: it neither waits for nor removes anything there.
func (o *Options) GiveUp(ctx context.Context) error { return progress.Ended(ctx, o.giveUp(ctx)) }

func (o *Options) giveUp(ctx context.Context) error {
	if err := o.Consumer.inspect(ctx); err != nil {
		return err
	}
	nodes, err := o.virtualNodes(ctx)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		known, err := o.Consumer.knows(ctx, o.Provider.ID())
		if err != nil {
			return err
		}
		if !known {
			return o.Consumer.notPeered(ctx, o.Provider.ID())
		}
	}
	o.beginRemoval()
	o.Provider.noteLeft(corev1.SchemeGroupVersion.WithKind("Namespace"), "", wire.TenantNamespace(o.Consumer.ID()))
	if !o.DryRun {
		o.say("%s: giving up %s: what it has of this cluster stays there", o.Consumer.ID(), o.Provider.ID())
		if err := GiveUp(ctx, o.Consumer.Client, o.Provider.ID()); err != nil && len(nodes) > 0 {
			return err
		}
	}
	if err := o.removeNodes(ctx, nodes); err != nil {
		return err
	}
	end, err := o.leaveConsumer(ctx)
	if err != nil {
		return err
	}
	return o.end(ctx, end)
}

// GiveUp declares a peer lost for good. Controllers no longer wait for it.
func GiveUp(ctx context.Context, c client.Client, peer string) error {
	cluster, err := foreignCluster(ctx, c, peer)
	if err != nil {
		return err
	}
	if cluster == nil {
		return fmt.Errorf("there is no ForeignCluster of cluster %s, which would be marked as abandoned: check that the controller manager runs", peer)
	}
	return markUnreachable(ctx, c, cluster, `"true"`)
}

// takeUp lets controllers wait again for a peer that was given up and is joined again.
func (c *Cluster) takeUp(ctx context.Context, peer string) error {
	cluster, err := foreignCluster(ctx, c.Client, peer)
	if err == nil && cluster != nil && cluster.Annotations[wire.PermanentlyUnreachableAnnotation] != "" {
		err = markUnreachable(ctx, c.Client, cluster, "null")
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return nil
}

// markUnreachable sets the annotation that declares a peer lost for good. The value null removes it.
func markUnreachable(ctx context.Context, c client.Client, cluster *core.ForeignCluster, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, wire.PermanentlyUnreachableAnnotation, value)
	if err := c.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("annotating ForeignCluster %s, %w", cluster.Name, err)
	}
	return nil
}

// foreignCluster returns the ForeignCluster of a peer, or nil if it does not exist.
func foreignCluster(ctx context.Context, c client.Client, peer string) (*core.ForeignCluster, error) {
	all := &core.ForeignClusterList{}
	if err := c.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing ForeignClusters, %w", err)
	}
	for i := range all.Items {
		if string(all.Items[i].Spec.ClusterID) == peer {
			return &all.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // as documented
}

// virtualNodes returns the virtual nodes of the provider. It fails if this program has not created all of them.
func (o *Options) virtualNodes(ctx context.Context) ([]offloading.VirtualNode, error) {
	all := &offloading.VirtualNodeList{}
	if err := o.Consumer.Client.List(ctx, all); err != nil {
		return nil, fmt.Errorf("cluster %s: listing VirtualNodes, %w", o.Consumer.Name, err)
	}
	nodes := slices.DeleteFunc(all.Items, func(vn offloading.VirtualNode) bool { return string(vn.Spec.ClusterID) != o.Provider.ID() })
	for i := range nodes {
		if !IsOurs(&nodes[i]) {
			return nil, fmt.Errorf("cluster %s: VirtualNode %s was not created by refractctl: remove it first, where it is declared (virtualKubelets of the chart), or with refractctl delete virtualnode",
				o.Consumer.Name, client.ObjectKeyFromObject(&nodes[i]))
		}
		o.say("%s: virtual node %s is to be drained and removed", o.Consumer.ID(), nodes[i].Name)
	}
	return nodes, nil
}

// removeNode deletes a virtual node, and waits until the controllers have drained and removed it.
func (o *Options) removeNode(ctx context.Context, vn *offloading.VirtualNode) error {
	key, c := client.ObjectKeyFromObject(vn), o.Consumer
	node, _, err := c.find(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: vn.Name}})
	if err != nil {
		return err
	}
	if err := o.confirmDeletion(ctx, vn); err != nil {
		return err
	}
	noted := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: vn.Namespace, Name: vn.Name, UID: vn.UID}}
	noted.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.VirtualNodeKind))
	if err := c.discard(ctx, noted); err != nil {
		return err
	}
	noteNode := func() {
		if node != nil && node.Labels[wire.TypeLabel] == wire.VirtualNodeType {
			c.noteRemoved(node) // removed by the controllers
		}
	}
	if o.DryRun {
		noteNode()
		return nil
	}
	err = o.await(ctx, "virtual node "+vn.Name, func(ctx context.Context) (string, error) {
		err := o.Consumer.Client.Get(ctx, key, vn)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("cluster %s: getting VirtualNode %s, %w", o.Consumer.Name, key, err)
		}
		for _, condition := range vn.Status.Conditions {
			if condition.Status == offloading.DeletingConditionStatus || condition.Status == offloading.DrainingConditionStatus {
				return condition.Message, nil
			}
		}
		return "waiting for the controller manager", nil
	})
	if err == nil {
		noteNode()
	}
	return err
}

// removeLeases deletes Leases of stopped virtual kubelets in the tenant namespace for a peer.
func (c *Cluster) removeLeases(ctx context.Context, peer string, names ...string) error {
	for _, name := range names {
		if err := c.discardAny(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace(peer), Name: name}}); err != nil {
			return err
		}
	}
	return nil
}

// removeRequests deletes the CertificateSigningRequests for serving certificates of virtual kubelets. Kubernetes
// would delete them after an hour or a day.
func (c *Cluster) removeRequests(ctx context.Context, peer string) error {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.Client.List(ctx, requests); err != nil {
		return fmt.Errorf("cluster %s: listing CertificateSigningRequests, %w", c.Name, err)
	}
	for i := range requests.Items {
		request := &requests.Items[i]
		namespace, _, err := serviceaccount.SplitUsername(request.Spec.Username)
		if err != nil || namespace != wire.TenantNamespace(peer) || request.Spec.SignerName != certificatesv1.KubeletServingSignerName {
			continue
		}
		if err := c.discardAny(ctx, request); err != nil {
			return err
		}
	}
	return nil
}

// remoteNamespaces returns the names of the consumer's namespaces on the provider.
func (o *Options) remoteNamespaces(ctx context.Context) (names []string, err error) {
	maps := &offloading.NamespaceMapList{}
	if err := o.Provider.Client.List(ctx, maps, client.InNamespace(wire.TenantNamespace(o.Consumer.ID()))); err != nil {
		return nil, fmt.Errorf("cluster %s: listing NamespaceMaps, %w", o.Provider.Name, err)
	}
	for i := range maps.Items {
		if maps.Items[i].Labels[wire.ReplicatedLabel] != "true" {
			continue
		}
		for _, status := range maps.Items[i].Status.CurrentMapping {
			names = append(names, status.RemoteNamespace)
		}
	}
	slices.Sort(names)
	return names, nil
}

// unused fails as long as the consumer has remote namespaces on the provider, because they would be deleted with the
// tenant namespace.
func (o *Options) unused(ctx context.Context) error {
	names, err := o.remoteNamespaces(ctx)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("cluster %s still has namespaces of %s: %s; delete them there if nobody needs them, and run the command again",
			o.Provider.Name, o.Consumer.ID(), strings.Join(names, ", "))
	}
	return nil
}

func (o *Options) leaveConsumer(ctx context.Context) (leaving, error) {
	if !o.DryRun {
		o.say("%s: removing the access to %s", o.Consumer.ID(), o.Provider.ID())
	}
	if err := o.Consumer.removeRequests(ctx, o.Provider.ID()); err != nil {
		return nil, err
	}
	if err := o.removePullSecrets(ctx); err != nil {
		return nil, err
	}
	objects := append(o.atConsumer(), o.secret(nil))
	if o.Provider.liqo {
		secret := o.secret(nil)
		secret.Name = KeysSecret
		objects = append(objects, secret)
	}
	return o.leave(ctx, o.Consumer, o.Provider.ID(), objects)
}

func (o *Options) leaveProvider(ctx context.Context) (leaving, error) {
	if o.Provider.invitation != nil {
		o.Provider.noteLeft(corev1.SchemeGroupVersion.WithKind("Namespace"), "", wire.TenantNamespace(o.Consumer.ID()))
		o.say("%s: has namespace %s for %s still: its administrator removes it with refractctl delete peering-user %s",
			o.Provider.ID(), wire.TenantNamespace(o.Consumer.ID()), o.Consumer.ID(), o.Consumer.ID())
		return noWait, nil
	}
	if !o.DryRun {
		o.say("%s: removing the access of %s", o.Provider.ID(), o.Consumer.ID())
	}
	// If the clusters are also joined in the other direction, a Lease that is no longer renewed would look like a
	// consumer that is down.
	if err := o.Provider.removeLeases(ctx, o.Consumer.ID(), wire.HeartbeatLease); err != nil {
		return nil, err
	}
	objects, err := o.requests(ctx)
	if o.Provider.liqo {
		objects, err = o.atLiqo(ctx)
	} else if err == nil {
		objects = append(objects, append(o.access(), o.quota(nil))...)
		err = o.withdrawRenewal(ctx)
	}
	if err != nil {
		return nil, err
	}
	return o.leave(ctx, o.Provider, o.Consumer.ID(), objects)
}

// leave removes the objects, the tenant namespace and then the ForeignCluster of a peer. The tenant namespace and the
// ForeignCluster stay while the clusters are also joined in the other direction.
func (o *Options) leave(ctx context.Context, c *Cluster, peer string, objects []client.Object) (leaving, error) {
	if err := c.removeAll(ctx, objects); err != nil {
		return nil, err
	}
	shared, err := c.stillPeered(ctx, peer)
	if err != nil {
		return nil, err
	}
	if shared {
		o.reverse = true
		c.noteLeft(corev1.SchemeGroupVersion.WithKind("Namespace"), "", wire.TenantNamespace(peer))
		return noWait, nil
	}
	network := &plugins.PeerNetwork{ObjectMeta: meta(wire.TenantNamespace(peer), peer, nil)}
	if err := c.remove(ctx, network); err != nil && !apimeta.IsNoMatchError(err) {
		return nil, err
	}
	tenant := &corev1.Namespace{ObjectMeta: meta("", wire.TenantNamespace(peer), nil)}
	if err := c.remove(ctx, tenant); err != nil {
		return nil, err
	}
	if o.DryRun {
		if err := c.noteContents(ctx, tenant); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		if !o.DryRun {
			if err := o.await(ctx, "namespace "+tenant.Name+" of "+c.ID(), func(ctx context.Context) (string, error) { return c.gone(ctx, tenant.Name) }); err != nil {
				return err
			}
		}
		return c.discardAny(ctx, &core.ForeignCluster{ObjectMeta: meta("", peer, nil)})
	}, nil
}

// noteContents records, in a dry run, the contents of a namespace that is removed.
func (c *Cluster) noteContents(ctx context.Context, namespace *corev1.Namespace) error {
	found, _, err := c.find(ctx, namespace)
	if err != nil || found == nil || !c.isRemoved(found.UID) {
		return err
	}
	return c.noteAll(ctx, client.InNamespace(namespace.Name))
}

// stillPeered reports whether the peer is still a provider or a consumer of this cluster.
func (c *Cluster) stillPeered(ctx context.Context, peer string) (bool, error) {
	tenant := wire.TenantNamespace(peer)
	nodes := &offloading.VirtualNodeList{}
	if err := c.Client.List(ctx, nodes, client.InNamespace(tenant)); err != nil {
		return false, fmt.Errorf("cluster %s: listing VirtualNodes, %w", c.Name, err)
	}
	access, _, err := c.find(ctx, rbac.Peer(c.installation.RolePrefix, peer).TenantNamespace(tenant))
	if err != nil {
		return false, err
	}
	// A consumer that runs Liqo has a Tenant instead. The Tenant of a consumer that refractctl has admitted is deleted
	// with its access.
	tenants := &auth.TenantList{}
	if err := c.Client.List(ctx, tenants, client.InNamespace(tenant)); err != nil && !apimeta.IsNoMatchError(err) {
		return false, fmt.Errorf("cluster %s: listing Tenants, %w", c.Name, err)
	}
	return slices.ContainsFunc(nodes.Items, func(vn offloading.VirtualNode) bool { return !c.isRemoved(vn.UID) }) ||
		slices.ContainsFunc(tenants.Items, func(t auth.Tenant) bool { return !t.IsOfRefractctl() && !c.isRemoved(t.UID) }) ||
		access != nil && !c.isRemoved(access.UID), nil
}

// gone returns a description of the remaining contents of a namespace that this program has created. It returns "" if
// the namespace is gone, or belongs to somebody else and therefore stays.
func (c *Cluster) gone(ctx context.Context, name string) (left string, err error) {
	namespace := &corev1.Namespace{}
	err = c.Client.Get(ctx, client.ObjectKey{Name: name}, namespace)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !IsOurs(namespace):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cluster %s: getting namespace %s, %w", c.Name, name, err)
	}
	for _, condition := range namespace.Status.Conditions {
		if condition.Type == corev1.NamespaceContentRemaining && condition.Status == corev1.ConditionTrue {
			return condition.Message, nil
		}
	}
	return "it is being deleted", nil
}
