// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
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
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/invitation"
	"github.com/refract-project/refract/internal/remotedata"
)

// Unpeer drains and removes the virtual nodes of the provider, and then everything that Peer has created in both
// clusters. It may be called again after an interruption. The returned Removal is not nil if the removal has begun,
// even if there is an error.
func (o *Options) Unpeer(ctx context.Context) (*Removal, error) {
	removal, err := o.unpeer(ctx)
	return removal, progress.Ended(ctx, err)
}

func (o *Options) unpeer(ctx context.Context) (*Removal, error) {
	p, err := o.inspectForRemoval(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.checkSides(p.defaultKind(o.Credentials)), p.checkPeers(ctx), p.checkRemovalRights(ctx)); err != nil {
		return nil, err
	}
	nodes, err := p.findNodes(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.checkData(ctx, nodes, o.DeleteData); err != nil {
		return nil, err
	}
	l := p.beginRemoval(o)
	err = l.unpeer(ctx, o.VirtualNode, nodes)
	return l.removal(), err
}

// unpeer removes the virtual nodes, and then the objects of the peering from both clusters.
func (l *leaving) unpeer(ctx context.Context, name string, nodes []offloading.VirtualNode) error {
	last, err := l.removeNodes(ctx, cmp.Or(name, l.provider.ID()), nodes)
	if err != nil {
		return err
	}
	if err := l.endRemoteNamespaces(ctx, len(nodes) > 0); err != nil {
		return err
	}
	// Kubernetes takes seconds to remove a namespace, so the namespaces of both clusters are deleted at the same
	// time.
	finishConsumer, err := l.leaveConsumer(ctx, last)
	if err != nil {
		return err
	}
	finishProvider, problem := l.leaveProvider(ctx)
	err = finishConsumer(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // both removals have the same error
	case err != nil || problem != nil:
		return errors.Join(problem, err)
	}
	return l.end(ctx, finishProvider)
}

// inspectForRemoval inspects the clusters. A provider whose invitation has expired is accessed with the token that
// the consumer has renewed since then.
func (o *Options) inspectForRemoval(ctx context.Context) (*pair, error) {
	consumer, err := o.Consumer.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	provider, err := o.Provider.InspectAsProvider(ctx)
	if ended := (*invitation.EndedError)(nil); errors.As(err, &ended) {
		provider, err = identity.Resume(ctx, consumer, o.Provider, ended)
	}
	if err != nil {
		return nil, err
	}
	return newPair(consumer, provider, o.Progress), nil
}

// checkData fails if the provider has data of volumes that would be lost with the virtual nodes. If there are no
// virtual nodes, it checks nothing, because Unpeer then fails as long as remote namespaces exist. It is called before
// anything is changed.
func (p *pair) checkData(ctx context.Context, nodes []offloading.VirtualNode, deleteData bool) error {
	if len(nodes) == 0 {
		return nil
	}
	volumes, err := remotedata.List(ctx, p.consumer.Client)
	if apierrors.IsForbidden(err) {
		p.Report("%s: warning: you may not list PersistentVolumes. The controllers keep remote namespaces with data, and the VirtualNode then has the condition %s", p.consumer.ID(), remotedata.HeldReason)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster %s: finding the volumes with data on %s, %w", p.consumer.Name, p.provider.ID(), err)
	}
	volumes = volumes.On(p.provider.ID())
	if held := volumes.Holding(deleteData); len(held) > 0 {
		return fmt.Errorf("cluster %s has the data of the volumes %s, which would be deleted, so nothing was changed: %s",
			p.provider.Name, held, held.Remedy("run the command again with --delete-data to delete it"))
	}
	if len(volumes) > 0 && deleteData {
		p.Report("%s: warning: the data of the volumes %s is deleted", p.provider.ID(), volumes)
	}
	return nil
}

// findNodes returns the virtual nodes of the provider. It fails if any of them was not created by refractctl.
func (p *pair) findNodes(ctx context.Context) ([]offloading.VirtualNode, error) {
	all := &offloading.VirtualNodeList{}
	if err := p.consumer.Client.List(ctx, all); err != nil {
		return nil, fmt.Errorf("cluster %s: listing VirtualNodes, %w", p.consumer.Name, err)
	}
	nodes := slices.DeleteFunc(all.Items, func(vn offloading.VirtualNode) bool { return string(vn.Spec.ClusterID) != p.provider.ID() })
	for i := range nodes {
		if !cluster.IsOurs(&nodes[i]) {
			return nil, fmt.Errorf("cluster %s: VirtualNode %s was not created by refractctl: remove it first, where it is declared (virtualKubelets of the chart), or with refractctl delete virtualnode",
				p.consumer.Name, client.ObjectKeyFromObject(&nodes[i]))
		}
		p.Report("%s: virtual node %s is to be drained and removed", p.consumer.ID(), nodes[i].Name)
	}
	return nodes, nil
}

// removeNodes drains and removes virtual nodes, together with their own objects. It returns the name of the last one,
// or the given name if there are no virtual nodes.
func (l *leaving) removeNodes(ctx context.Context, name string, nodes []offloading.VirtualNode) (last string, err error) {
	last = name
	for i := range nodes {
		last = nodes[i].Name
		if err := l.removeNode(ctx, &nodes[i]); err != nil {
			return "", err
		}
		if err := l.atConsumer.Remove(ctx, l.objectsOfNode(last).own()...); err != nil {
			return "", err
		}
		if err := removeLease(ctx, l.atConsumer, l.provider.ID(), last); err != nil {
			return "", err
		}
		if err := l.atConsumer.PreviewAll(ctx, client.MatchingLabels{wire.VirtualNodeLabel: last}); err != nil {
			return "", err
		}
	}
	// The virtual kubelets for the provider used this Lease to elect a leader.
	return last, removeLease(ctx, l.atConsumer, l.provider.ID(), wire.SharedLease)
}

// removeNode deletes a virtual node, and waits until the controllers have drained and removed it.
func (l *leaving) removeNode(ctx context.Context, vn *offloading.VirtualNode) error {
	node, _, err := l.consumer.Find(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: vn.Name}})
	if err != nil {
		return err
	}
	if err := l.confirmDeletion(ctx, vn); err != nil {
		return err
	}
	found := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: vn.Namespace, Name: vn.Name, UID: vn.UID}}
	found.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.VirtualNodeKind))
	if err := l.atConsumer.Delete(ctx, found); err != nil {
		return err
	}
	if err := l.atConsumer.Change(func() error { return l.awaitNodeGone(ctx, vn) }); err != nil {
		return err
	}
	if node != nil && node.Labels[wire.TypeLabel] == wire.VirtualNodeType {
		l.atConsumer.RecordRemoved(node) // the controllers remove the Node
	}
	return nil
}

// awaitNodeGone waits until the controllers have drained and removed a virtual node.
func (l *leaving) awaitNodeGone(ctx context.Context, vn *offloading.VirtualNode) error {
	key := client.ObjectKeyFromObject(vn)
	return l.Await(ctx, "virtual node "+vn.Name, func(ctx context.Context) (string, error) {
		err := l.consumer.Client.Get(ctx, key, vn)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("cluster %s: getting VirtualNode %s, %w", l.consumer.Name, key, err)
		}
		if vn.DeletionTimestamp != nil && !l.deleteData {
			if err := remotedata.RefuseHeld(ctx, l.consumer.Client, offloading.NamespaceMapKind, vn.Namespace, string(vn.Spec.ClusterID), vn.DeletionTimestamp.Time,
				"run the command again with --delete-data to delete it"); err != nil {
				return "", fmt.Errorf("virtual node %s: %w", vn.Name, err)
			}
		}
		for _, condition := range vn.Status.Conditions {
			if condition.Status == offloading.DeletingConditionStatus || condition.Status == offloading.DrainingConditionStatus {
				return condition.Message, nil
			}
		}
		return "waiting for the controller manager", nil
	})
}

// confirmDeletion allows the controllers to delete the data on the provider together with a virtual node.
func (l *leaving) confirmDeletion(ctx context.Context, vn *offloading.VirtualNode) error {
	if !l.deleteData || remotedata.IsConfirmed(vn) {
		return nil
	}
	return client.IgnoreNotFound(l.atConsumer.Change(func() error {
		return l.consumer.Annotate(ctx, vn, wire.DeleteDataAnnotation, "true")
	}))
}

// removeLease deletes a Lease in the tenant namespace for a peer. The process that renews the Lease must have stopped.
func removeLease(ctx context.Context, remover *cluster.Remover, peer, name string) error {
	return remover.RemoveAnyones(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace(peer), Name: name}})
}

// endRemoteNamespaces fails as long as the consumer has remote namespaces on the provider, because they would be
// deleted with the tenant namespace. The controllers delete the remote namespaces with the last virtual node. A dry
// run with virtual nodes lists them as removed.
func (l *leaving) endRemoteNamespaces(ctx context.Context, hasNodes bool) error {
	if l.dryRun && hasNodes {
		return l.previewRemoteNamespaces(ctx)
	}
	return l.requireUnused(ctx)
}

// previewRemoteNamespaces records, in a dry run, the remote namespaces that would be deleted with the last virtual
// node. Unless data is deleted, too, namespaces with claims are recorded as left. The contents cannot be read with an
// invitation.
func (l *leaving) previewRemoteNamespaces(ctx context.Context) error {
	names, err := l.tenant.RemoteNamespaces(ctx)
	if err != nil {
		return err
	}
	kind := corev1.SchemeGroupVersion.WithKind("Namespace")
	for _, name := range names {
		claims := &corev1.PersistentVolumeClaimList{}
		if err := l.provider.Client.List(ctx, claims, client.InNamespace(name), client.Limit(1)); err != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("cluster %s: listing PersistentVolumeClaims of namespace %s, %w", l.provider.Name, name, err)
		}
		if len(claims.Items) > 0 && !l.deleteData {
			l.atProvider.RecordLeft(kind, "", name)
			continue
		}
		found := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		found.SetGroupVersionKind(kind)
		l.atProvider.RecordRemoved(found)
		if err := l.atProvider.PreviewAll(ctx, client.InNamespace(name)); err != nil {
			return err
		}
	}
	return nil
}

// requireUnused fails as long as the consumer has remote namespaces on the provider.
func (l *leaving) requireUnused(ctx context.Context) error {
	names, err := l.tenant.RemoteNamespaces(ctx)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("cluster %s still has namespaces of %s: %s; delete them there if nobody needs them, and run the command again",
			l.provider.Name, l.consumer.ID(), strings.Join(names, ", "))
	}
	return nil
}

// finisher is a function that waits for the removals that have begun in a cluster, and completes them.
type finisher func(ctx context.Context) error

// nothingLeft is the finisher for a cluster without objects to remove.
func nothingLeft(context.Context) error { return nil }

// end completes a removal. In a dry run, it also lists the objects that would be removed.
func (l *leaving) end(ctx context.Context, finish finisher) error {
	if err := finish(ctx); err != nil || !l.dryRun {
		return err
	}
	l.removal().report(l.Reporter)
	return nil
}

// leaveConsumer removes the objects of the peering from the consumer. node is the name of the last virtual node.
func (l *leaving) leaveConsumer(ctx context.Context, node string) (finisher, error) {
	if !l.dryRun {
		l.Report("%s: removing the access to %s", l.consumer.ID(), l.provider.ID())
	}
	if err := l.removeServingRequests(ctx); err != nil {
		return nil, err
	}
	// Pods of a gateway may still need them: leave then removes them together with the gateway.
	if connected, err := gateways.HasGateway(ctx, l.consumer, l.provider.ID()); err != nil {
		return nil, err
	} else if !connected {
		if err := l.atConsumer.RemovePullSecrets(ctx, wire.TenantNamespace(l.provider.ID())); err != nil {
			return nil, err
		}
	}
	objects := append(l.objectsOfNode(node).all(), l.accessSecret("", nil, false))
	if l.provider.RunsLiqo {
		keys := l.accessSecret("", nil, false)
		keys.Name = KeysSecret
		objects = append(objects, keys)
	}
	return l.leave(ctx, l.atConsumer, l.provider.ID(), objects)
}

// removeServingRequests deletes the CertificateSigningRequests for serving certificates of virtual kubelets. Kubernetes
// itself would delete them only after an hour or a day.
func (l *leaving) removeServingRequests(ctx context.Context) error {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := l.consumer.Client.List(ctx, requests); err != nil {
		return fmt.Errorf("cluster %s: listing CertificateSigningRequests, %w", l.consumer.Name, err)
	}
	for i := range requests.Items {
		request := &requests.Items[i]
		namespace, _, err := serviceaccount.SplitUsername(request.Spec.Username)
		if err != nil || namespace != wire.TenantNamespace(l.provider.ID()) || request.Spec.SignerName != certificatesv1.KubeletServingSignerName {
			continue
		}
		if err := l.atConsumer.RemoveAnyones(ctx, request); err != nil {
			return err
		}
	}
	return nil
}

// leaveProvider removes the objects of the peering from the provider. With an invitation, it keeps them, and the
// provider's administrator must remove them.
func (l *leaving) leaveProvider(ctx context.Context) (finisher, error) {
	if l.provider.IsInvited() {
		l.atProvider.RecordLeft(corev1.SchemeGroupVersion.WithKind("Namespace"), "", l.tenant.Namespace())
		l.Report("%s: has namespace %s for %s still: its administrator removes it with refractctl delete peering-user %s",
			l.provider.ID(), l.tenant.Namespace(), l.consumer.ID(), l.consumer.ID())
		return nothingLeft, nil
	}
	if !l.dryRun {
		l.Report("%s: removing the access of %s", l.provider.ID(), l.consumer.ID())
	}
	// If the clusters are also joined in the other direction, a Lease that is no longer renewed would make the
	// consumer look unavailable.
	if err := removeLease(ctx, l.atProvider, l.consumer.ID(), wire.HeartbeatLease); err != nil {
		return nil, err
	}
	objects, err := l.revokeRenewal(ctx)
	if err != nil {
		return nil, err
	}
	return l.leave(ctx, l.atProvider, l.consumer.ID(), objects)
}

// revokeRenewal ends the renewal of certificates, and returns all other objects of the consumer on the provider.
func (l *leaving) revokeRenewal(ctx context.Context) ([]client.Object, error) {
	if l.provider.RunsLiqo {
		return l.liqoObjects(ctx)
	}
	requests, err := l.findRequests(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.tenant.RevokeRenewal(ctx, l.atProvider); err != nil {
		return nil, err
	}
	return append(requests, append(l.tenant.Access(), l.tenant.Quota(nil))...), nil
}

// leave removes the objects, the tenant namespace and finally the ForeignCluster of a peer. It keeps the tenant
// namespace and the ForeignCluster if the clusters are also joined in the other direction.
func (l *leaving) leave(ctx context.Context, remover *cluster.Remover, peer string, objects []client.Object) (finisher, error) {
	if err := remover.Remove(ctx, objects...); err != nil {
		return nil, err
	}
	shared, err := isStillPeered(ctx, remover, peer)
	if err != nil {
		return nil, err
	}
	if shared {
		l.isReverse = true
		remover.RecordLeft(corev1.SchemeGroupVersion.WithKind("Namespace"), "", wire.TenantNamespace(peer))
		return nothingLeft, nil
	}
	if err := gateways.Forget(ctx, remover, peer); err != nil {
		return nil, err
	}
	if err := remover.RemovePullSecrets(ctx, wire.TenantNamespace(peer)); err != nil {
		return nil, err
	}
	network := &plugins.PeerNetwork{ObjectMeta: cluster.Meta(wire.TenantNamespace(peer), peer, nil)}
	if err := remover.Remove(ctx, network); err != nil && !apimeta.IsNoMatchError(err) {
		return nil, err
	}
	namespace := &corev1.Namespace{ObjectMeta: cluster.Meta("", wire.TenantNamespace(peer), nil)}
	if err := remover.Remove(ctx, namespace); err != nil {
		return nil, err
	}
	if err := remover.PreviewContents(ctx, namespace); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := remover.Change(func() error {
			return l.Await(ctx, "namespace "+namespace.Name+" of "+remover.ID(), func(ctx context.Context) (string, error) { return remover.DescribeRemaining(ctx, namespace.Name) })
		}); err != nil {
			return err
		}
		return remover.RemoveAnyones(ctx, &core.ForeignCluster{ObjectMeta: cluster.Meta("", peer, nil)})
	}, nil
}

// isStillPeered reports whether the peer is still a provider or a consumer of this cluster.
func isStillPeered(ctx context.Context, c *cluster.Remover, peer string) (bool, error) {
	namespace := wire.TenantNamespace(peer)
	nodes := &offloading.VirtualNodeList{}
	if err := c.Client.List(ctx, nodes, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("cluster %s: listing VirtualNodes, %w", c.Name, err)
	}
	access, _, err := c.Find(ctx, rbac.Peer(c.Installation.RolePrefix, peer).TenantNamespace(namespace))
	if err != nil {
		return false, err
	}
	// A consumer that runs Liqo has a Tenant instead. If refractctl has admitted the consumer, the Tenant does not
	// count, because it is deleted with the consumer's access.
	tenants := &auth.TenantList{}
	if err := c.Client.List(ctx, tenants, client.InNamespace(namespace)); err != nil && !apimeta.IsNoMatchError(err) {
		return false, fmt.Errorf("cluster %s: listing Tenants, %w", c.Name, err)
	}
	return slices.ContainsFunc(nodes.Items, func(vn offloading.VirtualNode) bool { return !c.HasRemoved(vn.UID) }) ||
		slices.ContainsFunc(tenants.Items, func(t auth.Tenant) bool { return !t.IsOfRefractctl() && !c.HasRemoved(t.UID) }) ||
		access != nil && !c.HasRemoved(access.UID), nil
}
