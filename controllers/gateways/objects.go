// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/rbac"
)

// fieldOwner is the field manager of all writes.
const fieldOwner = client.FieldOwner(wire.GatewayFieldManager)

// componentSelector selects the objects of gateways.
var componentSelector = labels.SelectorFromSet(labels.Set{wire.ComponentLabel: wire.GatewayComponent})

// createRelated creates the objects that the pods of a gateway need, unless they exist.
func (c *Controller) createRelated(ctx context.Context, g gateway, deployment *appsv1.Deployment, isAvailable bool) (verdict, error) {
	if _, why, err := c.create(ctx, forgeBudget(g, deployment)); err != nil || why.reason != "" {
		return why, err
	}
	if why, err := c.createIdentity(ctx, g); err != nil || why.reason != "" {
		return why, err
	}
	if g.server != nil {
		if why, err := c.ensureSlice(ctx, g); err != nil || why.reason != "" {
			return why, err
		}
	}
	return c.createKeys(ctx, g, isAvailable)
}

// createKeys creates the Secret with the keys. While a pod is available, a deleted Secret is not replaced, because the
// peer would reject other keys.
func (c *Controller) createKeys(ctx context.Context, g gateway, isAvailable bool) (verdict, error) {
	name, isGiven := g.secretName()
	if isGiven || g.hasKeys() && isAvailable {
		return verdict{}, nil
	}
	secret, err := forgeKeys(g, name)
	if err != nil {
		return verdict{}, err
	}
	isNew, why, err := c.create(ctx, secret)
	if isNew && g.hasKeys() {
		const text = "Secret %s was missing and was created with new keys: copy its publicKey to the PublicKey at the peer"
		c.report.Warn(g.object(), keysReason, runAction, fmt.Sprintf(text, secret.Name))
	}
	return why, err
}

// createIdentity creates the ServiceAccount and its permissions. All gateways of the tenant namespace share them, and they are deleted with
// that namespace. So a peer that creates many gateways one after the other gets only one set of them.
func (c *Controller) createIdentity(ctx context.Context, g gateway) (verdict, error) {
	namespace := &corev1.Namespace{}
	key := client.ObjectKey{Name: g.object().GetNamespace()}
	if err := c.client.Get(ctx, key, namespace); err != nil {
		return verdict{}, fmt.Errorf("getting Namespace %s, %w", key.Name, err)
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: wire.GatewayServiceAccount}}
	gateways := rbac.Gateways{Prefix: c.options.RolePrefix}
	objects := []client.Object{account}
	for _, binding := range gateways.Bindings(namespace.Name, rbac.ServiceAccount(account.Namespace, account.Name)) {
		objects = append(objects, binding.(client.Object))
	}
	for _, object := range objects {
		object.SetOwnerReferences([]metav1.OwnerReference{owner})
		object.SetLabels(g.labels())
		if _, why, err := c.create(ctx, object); err != nil || why.reason != "" {
			return why, err
		}
	}
	return verdict{}, nil
}

// create creates an object unless an object with its name exists. If the API server rejects the object, the verdict
// contains the reason.
func (c *Controller) create(ctx context.Context, object client.Object) (isNew bool, why verdict, err error) {
	err = c.client.Create(ctx, object, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return false, verdict{}, nil
	}
	why, err = c.explainRefusal(object, err)
	return err == nil && why.reason == "", why, err
}

// explainRefusal returns a verdict if a user has to solve the problem, and otherwise the error.
func (c *Controller) explainRefusal(object client.Object, err error) (verdict, error) {
	if err == nil {
		return verdict{}, nil
	}
	if policy := admission.DenyingPolicy(err); policy != "" {
		return verdict{admission.DeniedReason, admission.Note(policy, err)}, nil
	}
	kind, unknown := c.client.GroupVersionKindFor(object)
	if unknown != nil {
		return verdict{}, unknown
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return verdict{invalidReason, fmt.Sprintf("%s %s was rejected: %v", kind.Kind, object.GetName(), err)}, nil
	}
	return verdict{}, fmt.Errorf("writing %s %s, %w", kind.Kind, client.ObjectKeyFromObject(object), err)
}

// ensureService creates or updates the Service of a server. For a client, it returns nil.
func (c *Controller) ensureService(ctx context.Context, g gateway, settings serviceSettings) (*corev1.Service, verdict, error) {
	if g.server == nil {
		return nil, verdict{}, nil
	}
	desired, current := forgeService(g, settings), &corev1.Service{}
	err := c.client.Get(ctx, client.ObjectKeyFromObject(desired), current)
	switch {
	case apierrors.IsNotFound(err):
		why, err := c.createOwned(ctx, g, desired)
		return desired, why, err
	case err != nil:
		return nil, verdict{}, fmt.Errorf("getting Service %s, %w", client.ObjectKeyFromObject(desired), err)
	case !isOwned(current, g):
		return nil, describeConflict(g, current, "Service"), nil
	}
	next := current.DeepCopy()
	next.Spec.Type, next.Spec.LoadBalancerIP = desired.Spec.Type, desired.Spec.LoadBalancerIP
	// The class of a load balancer cannot be changed.
	if current.Spec.Type != corev1.ServiceTypeLoadBalancer || next.Spec.Type != corev1.ServiceTypeLoadBalancer {
		next.Spec.LoadBalancerClass = desired.Spec.LoadBalancerClass
	}
	next.Annotations = merge(current.Annotations, desired.Annotations)
	if isPortChanged(current.Spec.Ports, desired.Spec.Ports) {
		next.Spec.Ports = desired.Spec.Ports
		if why, err := c.ensureSlice(ctx, g); err != nil || why.reason != "" {
			return nil, why, err
		}
	}
	if equality.Semantic.DeepEqual(current.Spec, next.Spec) && maps.Equal(current.Annotations, next.Annotations) {
		return current, verdict{}, nil
	}
	why, err := c.explainRefusal(next, c.client.Patch(ctx, next, client.MergeFrom(current), fieldOwner))
	return next, why, err
}

// isPortChanged reports whether the desired ports differ from the current ones. If no node port is desired, a node port
// that Kubernetes has chosen is not a difference.
func isPortChanged(current, desired []corev1.ServicePort) bool {
	if len(current) != len(desired) {
		return true
	}
	c, d := current[0], desired[0]
	return c.Port != d.Port || c.TargetPort != d.TargetPort || c.Protocol != d.Protocol || d.NodePort != 0 && c.NodePort != d.NodePort
}

// ensureSlice creates the EndpointSlice of the Service, or updates its port. The active pod writes the endpoints.
func (c *Controller) ensureSlice(ctx context.Context, g gateway) (verdict, error) {
	desired, current := forgeSlice(g), &discoveryv1.EndpointSlice{}
	isNew, why, err := c.create(ctx, desired.DeepCopy())
	if isNew || err != nil || why.reason != "" {
		return why, err
	}
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(desired), current); err != nil {
		return verdict{}, fmt.Errorf("getting EndpointSlice %s, %w", client.ObjectKeyFromObject(desired), err)
	}
	if !isOwned(current, g) {
		return describeConflict(g, current, "EndpointSlice"), nil
	}
	next := current.DeepCopy()
	next.Ports, next.Labels = desired.Ports, merge(current.Labels, desired.Labels)
	if equality.Semantic.DeepEqual(current, next) {
		return verdict{}, nil
	}
	return c.explainRefusal(next, c.client.Patch(ctx, next, client.MergeFrom(current), fieldOwner))
}

// readDeployment returns the Deployment of the gateway, or nil if it does not exist.
func (c *Controller) readDeployment(ctx context.Context, g gateway) (*appsv1.Deployment, error) {
	current := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: g.object().GetNamespace(), Name: g.objectName()}
	switch err := c.client.Get(ctx, key, current); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting Deployment %s, %w", key, err)
	}
	return current, nil
}

// ensureDeployment creates the Deployment, or updates it if the desired Deployment differs from the last written one.
// Otherwise, changes by admission or an administrator are kept.
func (c *Controller) ensureDeployment(
	ctx context.Context, g gateway, current, desired *appsv1.Deployment, hash string,
) (*appsv1.Deployment, verdict, error) {
	if desired.Annotations == nil {
		desired.Annotations = map[string]string{}
	}
	desired.Annotations[wire.TemplateHashAnnotation] = hash
	switch {
	case current == nil:
		why, err := c.createOwned(ctx, g, desired)
		if err == nil && why.reason == "" {
			c.report.Tell(g.object(), nil, createdReason, runAction, "Created Deployment "+desired.Name+" of the gateway")
		}
		return desired, why, err
	case !isOwned(current, g):
		return nil, describeConflict(g, current, "Deployment"), nil
	case current.Annotations[wire.TemplateHashAnnotation] == hash:
		return current, verdict{}, nil
	}
	next := current.DeepCopy()
	next.Labels, next.Annotations = merge(current.Labels, desired.Labels), merge(current.Annotations, desired.Annotations)
	selector := next.Spec.Selector
	next.Spec = desired.Spec
	next.Spec.Selector = selector
	why, err := c.explainRefusal(next, c.client.Patch(ctx, next, client.MergeFrom(current), fieldOwner))
	if err == nil && why.reason == "" {
		c.report.Tell(g.object(), nil, updatedReason, runAction, "Updated Deployment "+desired.Name+" of the gateway")
	}
	return next, why, err
}

// createOwned creates an object that must belong to the gateway.
func (c *Controller) createOwned(ctx context.Context, g gateway, object client.Object) (verdict, error) {
	isNew, why, err := c.create(ctx, object)
	if isNew || err != nil || why.reason != "" {
		return why, err
	}
	// Another client has created it without the label by which the cache finds it, or the cache is behind our own write.
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil || isOwned(object, g) {
		return verdict{}, err
	}
	kind, err := c.client.GroupVersionKindFor(object)
	return describeConflict(g, object, kind.Kind), err
}

// isOwned reports whether an object belongs to the gateway.
func isOwned(object client.Object, g gateway) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == g.object().GetUID()
}

// describeConflict returns the verdict on a gateway if an object with the name of one of its own objects does not
// belong to it.
func describeConflict(g gateway, object client.Object, kind string) verdict {
	const text = "%s %s exists and does not belong to this %s: it is left as it is. Delete it, and the controller manager creates its own"
	return verdict{conflictReason, fmt.Sprintf(text, kind, object.GetName(), g.kind())}
}
