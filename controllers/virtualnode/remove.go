// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/finalizer"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/remotedata"
)

// Reasons of conditions and Events, and the action of the Events.
const (
	removingReason = "Removing"
	removedReason  = "NodeRemoved"
	givenUpReason  = "ProviderGivenUp"
	deletedReason  = "VkDeleted" // Liqo uses the same reason

	removeAction = "Remove"
)

// remove removes a virtual node whose VirtualNode is being deleted.
func (c *Controller) remove(ctx context.Context, v *virtualNode) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(v.VirtualNode, wire.VirtualNodeFinalizer) {
		return reconcile.Result{}, nil
	}
	if err := fresh.Check(ctx, c.client, c.live, v.VirtualNode); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	steps := []func(context.Context, *virtualNode) (done bool, err error){c.leave, c.withdraw, c.removeNodeStep, c.removeKubelet, c.removeBesides, c.removeAccess}
	for _, step := range steps {
		if done, err := step(ctx, v); err != nil || !done {
			return reconcile.Result{RequeueAfter: c.again(v.DeletionTimestamp.Time)}, err
		}
	}
	log.FromContext(ctx).Info("Removed a virtual node", "virtualnode", v.Name, "provider", v.provider())
	return reconcile.Result{}, finalizer.Ensure(ctx, c.client, v.VirtualNode, wire.VirtualNodeFinalizer, false)
}

// leave drains the node, unless the provider is dead. Pods on a dead provider never terminate, and Kubernetes deletes
// the pods of a deleted node.
func (c *Controller) leave(ctx context.Context, v *virtualNode) (done bool, err error) {
	if !v.dead() {
		return c.drain(ctx, v)
	}
	if v.node == nil {
		return true, nil
	}
	if err := c.cordon(ctx, v.node); err != nil {
		return false, err
	}
	return true, c.listLeftovers(ctx, v)
}

// listLeftovers reports the objects that remain on a dead provider for this cluster. The report is on the
// ForeignCluster, because the VirtualNode is removed.
func (c *Controller) listLeftovers(ctx context.Context, v *virtualNode) error {
	pods, err := c.podsOf(ctx, v.Name)
	if err != nil {
		return err
	}
	left := []string{count(len(pods), "pod")}
	mapping, err := c.mapping(ctx, v)
	if err != nil {
		return err
	}
	if mapping != nil && len(mapping.Status.CurrentMapping) > 0 {
		left = append(left, "the namespaces "+strings.Join(remoteNamespaces(mapping), ", "))
	}
	volumes, err := c.volumes(ctx, v)
	if err != nil {
		return err
	}
	if len(volumes) > 0 {
		left = append(left, "the data of the volumes "+strings.Join(volumes.Names(), ", "))
	}
	c.report.Warn(v.cluster, givenUpReason, removeAction, fmt.Sprintf("virtual node %s removed without cleaning up abandoned cluster %s; remaining there: %s",
		v.Name, v.provider(), strings.Join(left, ", ")))
	return nil
}

func remoteNamespaces(mapping *offloading.NamespaceMap) []string {
	var names []string
	for _, status := range mapping.Status.CurrentMapping {
		names = append(names, status.RemoteNamespace)
	}
	slices.Sort(names)
	return names
}

// withdraw deletes the NamespaceMap of a provider, and thereby all remote namespaces, together with the last virtual
// node of the provider. It waits as long as a remote namespace contains data, i.e. as long as PersistentVolumes of
// users represent data there.
func (c *Controller) withdraw(ctx context.Context, v *virtualNode) (done bool, err error) {
	if last, err := c.isLast(ctx, v); err != nil || !last {
		return err == nil, err
	}
	mapping, err := c.mapping(ctx, v)
	if err != nil || mapping == nil {
		return err == nil, err
	}
	if mapping.DeletionTimestamp == nil {
		if held, err := c.holdsData(ctx, v); held || err != nil {
			return false, err
		}
	}
	// The deletion can still be confirmed now, because claims that only the provider knows may prevent the deletion of
	// the map.
	if err := c.confirmDeletion(ctx, v, mapping); err != nil {
		return false, err
	}
	if mapping.DeletionTimestamp == nil {
		if err := c.client.Delete(ctx, mapping, client.Preconditions{UID: &mapping.UID}); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting NamespaceMap %s, %w", client.ObjectKeyFromObject(mapping), err)
		}
	}
	message := fmt.Sprintf("Waiting for cluster %s to confirm that it has no remote namespace of this one", v.provider())
	if left := len(mapping.Status.CurrentMapping); left > 0 {
		message = fmt.Sprintf("Waiting for cluster %s to delete %s", v.provider(), count(left, "remote namespace"))
	}
	return false, c.show(ctx, v, condition(offloading.NodeConditionType, offloading.DeletingConditionStatus, removingReason, message))
}

// holdsData reports whether the provider has data that would be lost with its namespaces. If so, a condition of the
// VirtualNode shows this.
func (c *Controller) holdsData(ctx context.Context, v *virtualNode) (bool, error) {
	if v.dead() {
		return false, nil
	}
	volumes, err := c.volumes(ctx, v)
	if err != nil {
		return false, err
	}
	confirmed := v.confirmsDeletion()
	held := volumes.Holding(confirmed)
	switch {
	case len(held) > 0:
		message := fmt.Sprintf("Cluster %s has the data of the volumes %s, which would be lost: %s", v.provider(), held, held.Remedy(remotedata.Annotate("VirtualNode")))
		c.report.Warn(v.VirtualNode, remotedata.HeldReason, removeAction, message)
		return true, c.show(ctx, v, condition(offloading.NodeConditionType, offloading.DeletingConditionStatus, remotedata.HeldReason, "The node is drained. "+message))
	case len(volumes) > 0 && !confirmed: // the claims of these volumes no longer exist
		message := fmt.Sprintf("The node is drained. Waiting for the virtual kubelet to delete the data of the volumes %s", volumes)
		return true, c.show(ctx, v, condition(offloading.NodeConditionType, offloading.DeletingConditionStatus, removingReason, message))
	}
	return false, nil
}

// confirmsDeletion reports whether a user has confirmed that the data on the provider may be deleted with the virtual
// node.
func (v *virtualNode) confirmsDeletion() bool { return remotedata.IsConfirmed(v.VirtualNode) }

// confirmDeletion copies the user's confirmation to the NamespaceMap, whose deletion removes the remote namespaces.
func (c *Controller) confirmDeletion(ctx context.Context, v *virtualNode, mapping *offloading.NamespaceMap) error {
	if !v.confirmsDeletion() || remotedata.IsConfirmed(mapping) {
		return nil
	}
	changed := mapping.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, wire.DeleteDataAnnotation, "true")
	if err := c.client.Patch(ctx, changed, client.MergeFrom(mapping), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("annotating NamespaceMap %s, %w", client.ObjectKeyFromObject(mapping), err)
	}
	return nil
}

// volumes returns the PersistentVolumes that represent data on the provider.
func (c *Controller) volumes(ctx context.Context, v *virtualNode) (remotedata.Volumes, error) {
	volumes, err := remotedata.List(ctx, c.live)
	return volumes.On(v.provider()), err
}

// isLast reports whether all other virtual nodes of the provider are being removed, if there are any.
func (c *Controller) isLast(ctx context.Context, v *virtualNode) (bool, error) {
	all := &offloading.VirtualNodeList{}
	if err := c.live.List(ctx, all); err != nil {
		return false, fmt.Errorf("listing VirtualNodes, %w", err)
	}
	return !slices.ContainsFunc(all.Items, func(other offloading.VirtualNode) bool {
		return other.UID != v.UID && other.Spec.ClusterID == v.Spec.ClusterID && other.DeletionTimestamp == nil
	}), nil
}

// mapping returns the NamespaceMap for the provider, or nil if it does not exist.
func (c *Controller) mapping(ctx context.Context, v *virtualNode) (*offloading.NamespaceMap, error) {
	list := &offloading.NamespaceMapList{}
	if err := c.live.List(ctx, list, client.InNamespace(v.Namespace), client.MatchingLabels{wire.RemoteIDLabel: v.provider()}); err != nil {
		return nil, fmt.Errorf("listing NamespaceMaps in %s, %w", v.Namespace, err)
	}
	for i := range list.Items {
		if peers.IsOutgoing(&list.Items[i]) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// removeNodeStep deletes the Node while the virtual kubelet still runs, so that the virtual kubelet terminates the
// pods that Kubernetes deletes with the Node.
func (c *Controller) removeNodeStep(ctx context.Context, v *virtualNode) (done bool, err error) {
	if v.node != nil {
		return false, c.removeNode(ctx, v)
	}
	if v.dead() || v.taken {
		return true, nil
	}
	left, err := c.boundTo(ctx, v.Name)
	return err == nil && len(left) == 0, err
}

// removeNode deletes the Node if it exists, and reports this in a condition.
func (c *Controller) removeNode(ctx context.Context, v *virtualNode) error {
	if v.node != nil {
		err := c.client.Delete(ctx, v.node, client.Preconditions{UID: &v.node.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting node %s, %w", v.Name, err)
		}
	}
	return c.show(ctx, v, condition(offloading.NodeConditionType, offloading.NoneConditionStatus, removedReason, "The node was drained and removed"))
}

// removeKubelet deletes the Deployment of the virtual kubelet and waits for its pods to end.
func (c *Controller) removeKubelet(ctx context.Context, v *virtualNode) (done bool, err error) {
	deployment := &metav1.PartialObjectMetadata{}
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	err = c.live.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: kubeletName(v.Name)}, deployment)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting Deployment %s/%s, %w", v.Namespace, kubeletName(v.Name), err)
	}
	if ours := deployment.Labels[wire.VirtualNodeLabel] == v.Name; err == nil && ours && deployment.DeletionTimestamp == nil {
		options := &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &deployment.UID}, PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}
		if err := c.client.Delete(ctx, deployment, options); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting Deployment %s, %w", client.ObjectKeyFromObject(deployment), err)
		}
		c.report.Tell(v.VirtualNode, nil, deletedReason, removeAction, "Deleted Deployment "+deployment.Name+" of the virtual kubelet")
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	ofKubelet := client.MatchingLabels{wire.ComponentLabel: wire.VirtualKubeletComponent, wire.VirtualNodeLabel: v.Name}
	if err := c.live.List(ctx, pods, client.InNamespace(v.Namespace), ofKubelet); err != nil {
		return false, fmt.Errorf("listing the pods of the virtual kubelet of %s, %w", v.Name, err)
	}
	if len(pods.Items) == 0 {
		return true, nil
	}
	message := fmt.Sprintf("Waiting for %s of the virtual kubelet to terminate", count(len(pods.Items), "pod"))
	return false, c.show(ctx, v, condition(offloading.VirtualKubeletConditionType, offloading.DeletingConditionStatus, removingReason, message))
}

// kubeletName returns the name of the Deployment of a virtual kubelet. The name is the same as in Liqo.
func kubeletName(virtualNode string) string { return "vk-" + virtualNode }

// removeBesides deletes the objects that refractctl has created for the virtual kubelet in addition to its permissions,
// if the VirtualNode owns them: the disruption budget, the NetworkPolicy, and credentials that belong only to this
// virtual node. The garbage collector would delete them later, but it may be down. If the Role was created by an
// earlier version and does not permit the deletion, the object is left to the garbage collector.
func (c *Controller) removeBesides(ctx context.Context, v *virtualNode) (done bool, err error) {
	besides := []*metav1.PartialObjectMetadata{
		besideOf(v, policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), kubeletName(v.Name)),
		besideOf(v, networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), kubeletName(v.Name)),
	}
	if secret := v.Spec.KubeconfigSecretRef; secret != nil && secret.Name != "" {
		besides = append(besides, besideOf(v, corev1.SchemeGroupVersion.WithKind("Secret"), secret.Name))
	}
	for _, object := range besides {
		kind, key := object.Kind, client.ObjectKeyFromObject(object)
		err := c.live.Get(ctx, key, object)
		if err == nil && object.DeletionTimestamp == nil && isOwnedBy(object, v.UID) {
			err = c.client.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID()), ResourceVersion: ptr.To(object.GetResourceVersion())})
		}
		if isNotGranted(err) {
			log.FromContext(ctx).Info("Leaving an object of a virtual kubelet to the garbage collector", "kind", kind, "object", key, "err", err)
			continue
		}
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting %s %s, %w", kind, key, err)
		}
	}
	return true, nil
}

// notGranted matches the message of an API server for a request that no role permits. Only the message shows this,
// because admission also denies requests with the reason Forbidden.
var notGranted = regexp.MustCompile(`is forbidden: User "[^"]*" cannot (get|delete) resource "`)

// isNotGranted reports whether err means that no role permits the request. All other errors, such as the denial of a
// policy, are reported and retried.
func isNotGranted(err error) bool {
	return apierrors.IsForbidden(err) && admission.DenyingPolicy(err) == "" && notGranted.MatchString(err.Error())
}

func besideOf(v *virtualNode, kind schema.GroupVersionKind, name string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: name}}
	object.SetGroupVersionKind(kind)
	return object
}

// isOwnedBy reports whether the object has exactly one owner, which has the given UID.
func isOwnedBy(object client.Object, uid types.UID) bool {
	owners := object.GetOwnerReferences()
	return len(owners) == 1 && owners[0].UID == uid
}

// removeAccess deletes the ServiceAccount of the virtual kubelet, with its roles and their bindings, if they were
// created for this virtual node.
func (c *Controller) removeAccess(ctx context.Context, v *virtualNode) (done bool, err error) {
	if v.duplicate != "" {
		return true, nil // the ServiceAccount belongs to the older VirtualNode
	}
	for _, kind := range []schema.GroupVersionKind{
		rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
		rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), rbacv1.SchemeGroupVersion.WithKind("Role"),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.live.List(ctx, list, client.MatchingLabels{wire.VirtualNodeLabel: v.Name}); err != nil {
			return false, fmt.Errorf("listing %ss of virtual node %s, %w", kind.Kind, v.Name, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			if kind.Kind == "ServiceAccount" && object.Namespace != v.Namespace {
				continue
			}
			object.SetGroupVersionKind(kind)
			if err := c.client.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())}); client.IgnoreNotFound(err) != nil {
				return false, fmt.Errorf("deleting %s %s, %w", kind.Kind, client.ObjectKeyFromObject(object), err)
			}
		}
	}
	return true, nil
}
