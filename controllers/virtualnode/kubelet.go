// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/rollout"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// Reasons of conditions and Events, and the action of the Events.
const (
	createdReason         = "VkCreated" // Liqo uses the same reason
	updatedReason         = "VkUpdated"
	noTemplateReason      = "TemplateNotFound"
	invalidTemplateReason = "InvalidTemplate"
	conflictReason        = "DeploymentConflict"
	duplicateReason       = "DuplicateVirtualNode"
	reservedReason        = "ReservedName"
	noAccountReason       = "ServiceAccountNotFound"
	progressingReason     = "DeploymentProgressing"
	availableReason       = "DeploymentAvailable"

	deployAction = "Deploy"
)

// problem is the reason why a virtual kubelet cannot be deployed until a user corrects something.
type problem struct {
	reason, message string
	// retry is the delay until the next attempt; 0 means exponential backoff.
	retry time.Duration
}

// run creates or updates the Deployment of the virtual kubelet, and reports in a condition whether the virtual kubelet
// runs. It returns the problem that a user must solve first, or nil.
func (c *Controller) run(ctx context.Context, v *virtualNode) (wrong *problem, err error) {
	if !c.runsKubelets() {
		return nil, nil
	}
	wrong, err = c.deploy(ctx, v)
	if err != nil || wrong == nil {
		return nil, err
	}
	c.report.Warn(v.VirtualNode, wrong.reason, deployAction, wrong.message)
	return wrong, c.show(ctx, v, condition(offloading.VirtualKubeletConditionType, offloading.NoneConditionStatus, wrong.reason, wrong.message))
}

func (c *Controller) deploy(ctx context.Context, v *virtualNode) (*problem, error) {
	if v.Name == wire.ConsumerServiceAccount {
		return &problem{reason: reservedReason, message: "metadata.name is reserved: the ServiceAccount of that name is the one with which cluster " + v.provider() +
			" authenticates as a consumer of this one. Delete this VirtualNode, and recreate it under another name"}, nil
	}
	if v.duplicate != "" {
		return &problem{reason: duplicateReason, message: fmt.Sprintf("An older VirtualNode of the same name exists in namespace %s, and node names are unique: delete this one, and recreate it under another name", v.duplicate)}, nil
	}
	if v.template == nil {
		return &problem{reason: noTemplateReason, message: fmt.Sprintf("VkOptionsTemplate %s not found: create it, or set spec.vkOptionsTemplateRef to an existing one", v.templateName)}, nil
	}
	// The patch is published before the virtual kubelet runs, so that keys that the patch excludes are never reflected.
	if err := c.publishPatch(ctx, v); err != nil {
		return nil, err
	}
	desired, err := Forge(v.VirtualNode, v.template, c.options.Installation)
	if err != nil {
		return &problem{reason: invalidTemplateReason, message: err.Error()}, nil
	}
	if !v.CreateNode() && v.node != nil { // the virtual kubelet must keep the node, because it still has to terminate the pods
		kubelet := containerOf(desired)
		kubelet.Args = withFlags(kubelet.Args, []string{"--create-node=true"})
	}
	flags, waiting, err := c.addressFlags(ctx, v)
	if err != nil {
		return nil, err
	}
	container := containerOf(desired)
	container.Args = withFlags(container.Args, flags)
	if err := seal(desired, v.VirtualNode); err != nil {
		return nil, err
	}
	desired.Annotations[wire.TemplateAnnotation] = fmt.Sprintf("%s@%d", client.ObjectKeyFromObject(v.template), v.template.Generation)
	current := &appsv1.Deployment{}
	err = c.live.Get(ctx, client.ObjectKeyFromObject(desired), current)
	switch {
	case apierrors.IsNotFound(err) && waiting != nil:
		return waiting, nil
	case apierrors.IsNotFound(err):
		if wrong, err := c.ensureAccount(ctx, v, desired); err != nil || wrong != nil {
			return wrong, err
		}
		if err = c.brake.MayCreate(ctx, v.VirtualNode, deployAction); err != nil {
			return nil, err
		}
		err = c.client.Create(ctx, desired, client.FieldOwner(fieldManager))
		if err == nil {
			c.brake.Created(v.VirtualNode)
			c.report.Tell(v.VirtualNode, nil, createdReason, deployAction, "Created Deployment "+desired.Name+" of the virtual kubelet")
			current = desired
		}
	case err != nil:
		return nil, fmt.Errorf("getting Deployment %s, %w", client.ObjectKeyFromObject(desired), err)
	case !equality.Semantic.DeepEqual(current.Spec.Selector, desired.Spec.Selector):
		return &problem{reason: conflictReason, message: fmt.Sprintf("Deployment %s/%s already exists with a different selector: delete it, or recreate this VirtualNode under another name", current.Namespace, current.Name)}, nil
	case waiting != nil: // the virtual kubelet keeps the ranges that it has
	case !isCurrent(current, desired):
		err = c.update(ctx, v, current, desired)
	}
	if (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) && admission.DenyingPolicy(err) == "" {
		return &problem{reason: invalidTemplateReason, message: fmt.Sprintf("Deployment %s/%s was rejected: %s", desired.Namespace, desired.Name, err)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("writing Deployment %s, %w", client.ObjectKeyFromObject(desired), err)
	}
	if current.Status.AvailableReplicas == 0 { // the ServiceAccount may have been deleted in the meantime
		if wrong, err := c.ensureAccount(ctx, v, desired); err != nil || wrong != nil {
			return wrong, err
		}
	}
	return nil, c.showKubelet(ctx, v, current)
}

// update changes the Deployment to the desired one. It keeps the labels and annotations of other owners, and the
// changes to the spec that nextSpec keeps.
func (c *Controller) update(ctx context.Context, v *virtualNode, current, desired *appsv1.Deployment) error {
	next := current.DeepCopy()
	next.Spec, next.OwnerReferences = nextSpec(current, desired), desired.OwnerReferences
	for _, m := range []struct{ into, from *map[string]string }{{&next.Labels, &desired.Labels}, {&next.Annotations, &desired.Annotations}} {
		if *m.into == nil {
			*m.into = map[string]string{}
		}
		maps.Copy(*m.into, *m.from)
	}
	asked, changes := desired.Annotations[wire.TemplateHashAnnotation], changesOf(current, next)
	if err := c.brake.MayChange(ctx, v.VirtualNode, deployAction, asked, changes); err != nil {
		return err
	}
	if err := c.client.Update(ctx, next, client.FieldOwner(fieldManager)); err != nil {
		return err
	}
	c.brake.Changed(v.VirtualNode, asked, changes)
	if next.Generation != current.Generation {
		c.report.Tell(v.VirtualNode, nil, updatedReason, deployAction, "Updated Deployment "+desired.Name+" of the virtual kubelet")
	}
	*current = *next
	return nil
}

// changesOf describes an update of a Deployment.
func changesOf(current, next *appsv1.Deployment) (changes jsonpatch.Patch) {
	never := func(string) bool { return false }
	changes = append(changes, jsonpatch.Strings("/metadata/labels", current.Labels, next.Labels, never)...)
	changes = append(changes, jsonpatch.Strings("/metadata/annotations", current.Annotations, next.Annotations, never)...)
	if !equality.Semantic.DeepEqual(current.OwnerReferences, next.OwnerReferences) {
		changes.Replace("/metadata/ownerReferences", next.OwnerReferences)
	}
	if !equality.Semantic.DeepEqual(current.Spec, next.Spec) {
		changes.Replace("/spec", next.Spec)
	}
	return changes
}

// publishPatch writes the effective offloadingPatch to the status, from which virtual kubelets read it.
func (c *Controller) publishPatch(ctx context.Context, v *virtualNode) error {
	patch := effectivePatch(v.VirtualNode, v.template)
	if equality.Semantic.DeepEqual(v.Status.EffectiveOffloadingPatch, patch) {
		return nil
	}
	changed := v.DeepCopy()
	changed.Status.EffectiveOffloadingPatch = patch
	if err := c.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(v.VirtualNode, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("writing the offloading patch of VirtualNode %s, %w", client.ObjectKeyFromObject(v.VirtualNode), err)
	}
	v.VirtualNode = changed
	return nil
}

// showKubelet reports in a condition whether the virtual kubelet runs. If it does not run, the condition contains the
// reason from its pods.
func (c *Controller) showKubelet(ctx context.Context, v *virtualNode, current *appsv1.Deployment) error {
	if current.Status.AvailableReplicas > 0 && current.Status.ObservedGeneration == current.Generation {
		return c.show(ctx, v, condition(offloading.VirtualKubeletConditionType, offloading.RunningConditionStatus, availableReason, "Deployment "+current.Name+" is available"))
	}
	if current.Status.AvailableReplicas > 0 { // a pod of the old version serves until a new pod is available
		return nil
	}
	message := "Waiting for Deployment " + current.Name + " to become available"
	why, err := rollout.FindProblem(ctx, c.live, current)
	if err != nil {
		return err
	}
	if why != "" {
		message += ": " + why
	}
	return c.show(ctx, v, condition(offloading.VirtualKubeletConditionType, offloading.CreatingConditionStatus, progressingReason, message))
}
