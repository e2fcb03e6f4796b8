// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// alignRunning applies the changes that need a subresource: sizes (in-place resize) and ephemeral containers (kubectl
// debug). Neither is in the cache. It returns the containers whose sizes could not be written, together with an
// error. If the change is refused, it returns the reason and changes nothing.
func (c *Controller) alignRunning(ctx context.Context, shadow *unstructured.Unstructured, cached *corev1.Pod) (pending []string, refusal *tenancy.Refusal, err error) {
	spec, ok := podSpec(shadow)
	if !ok {
		return nil, nil, nil
	}
	pod := &corev1.Pod{}
	if err := c.uncached.Get(ctx, client.ObjectKeyFromObject(shadow), pod); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	if pod.UID != cached.UID || pod.DeletionTimestamp != nil {
		return nil, nil, nil // the pod is deleted or was replaced, so another event will follow
	}
	last := c.lastAsked(pod)
	sizes := newSizes(spec, pod, last)
	if len(sizes) > 0 || replacesImages(spec, pod, last) {
		if refusal, err := c.reserveChange(ctx, shadow, pod, spec, last); refusal != nil || err != nil {
			return nil, refusal, err
		}
	}
	ephemeral := c.alignEphemeral(ctx, shadow, spec, pod)
	pending, err = c.resize(ctx, shadow, pod, sizes)
	return pending, nil, errors.Join(ephemeral, err)
}

// resize writes the new sizes and settles their Quota reservation. It returns the containers whose sizes were not
// written.
func (c *Controller) resize(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, sizes []newSize) (pending []string, err error) {
	if len(sizes) > 1 {
		resized, err := c.resizeAtOnce(ctx, pod, sizes)
		switch {
		case resized != nil:
			c.settleQuota(resized)
			return nil, nil
		case !isDecided(err):
			for _, size := range sizes {
				pending = append(pending, size.container)
			}
			return pending, err
		}
	}
	var problems []error
	var written *corev1.Pod
	unknown := false
	for _, size := range sizes {
		resized, err := c.patchSubresource(ctx, shadow, pod, "resize", size.patch)
		if resized != nil {
			written = resized
		}
		if err != nil {
			pending = append(pending, size.container)
		}
		unknown = unknown || err != nil && !isDecided(err)
		problems = append(problems, err)
	}
	switch {
	case unknown: // the reservation stays until the next attempt
	case written != nil:
		c.settleQuota(written)
	default:
		c.releaseQuota(client.ObjectKeyFromObject(shadow))
	}
	return pending, errors.Join(problems...)
}

// changedPod returns the pod with the desired values of all fields that a Quota counts. replaces is true if images
// are replaced, which makes it another pod.
func changedPod(spec map[string]any, pod *corev1.Pod, last *asked.Record) (changed *corev1.Pod, replaces bool) {
	changed = pod.DeepCopy()
	for field, containers := range map[string][]corev1.Container{"containers": changed.Spec.Containers, "initContainers": changed.Spec.InitContainers} {
		desired := desiredSizes(field, spec)
		for i := range containers {
			name := containers[i].Name
			containers[i].Resources, _ = withAmounts(containers[i].Resources, desired[name], last, field, name)
		}
	}
	if changed.Spec.Resources != nil {
		*changed.Spec.Resources, _ = withAmounts(*changed.Spec.Resources, spec["resources"], last, podLevel, "")
	}
	return changed, replacesImages(spec, pod, last)
}

func replacesImages(spec map[string]any, pod *corev1.Pod, last *asked.Record) bool {
	return last != nil && len(imageChanges("containers", spec, pod.Spec.Containers, last))+len(imageChanges("initContainers", spec, pod.Spec.InitContainers, last)) > 0
}

func (c *Controller) alignEphemeral(ctx context.Context, shadow *unstructured.Unstructured, spec map[string]any, pod *corev1.Pod) error {
	changes := newEphemeral(spec, pod)
	if len(changes) == 0 {
		return nil
	}
	refusal, err := c.judgeEphemeral(ctx, shadow)
	if err != nil {
		return err
	}
	if refusal != nil {
		c.report.Warn(shadow, refusedReason, updateAction, refusal.Error())
		return nil
	}
	_, err = c.patchSubresource(ctx, shadow, pod, "ephemeralcontainers", changes)
	return err
}

// patchSubresource patches a subresource of the pod. It returns the written pod, or nil if nothing was written.
func (c *Controller) patchSubresource(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, name string, changes jsonpatch.Patch) (*corev1.Pod, error) {
	if err := c.brake.MayChange(ctx, shadow, updateAction, name, changes); err != nil {
		return nil, err
	}
	patch, err := changes.For(pod.UID)
	if err != nil {
		return nil, err
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = c.client.SubResource(name).Patch(ctx, target, patch, client.FieldOwner(wire.ShadowPodFieldManager))
	switch {
	case err == nil:
		c.brake.Changed(shadow, name, changes)
		return target, nil
	case isUnserved(err):
		c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction, fmt.Sprintf(
			"patching %s of the pod: the API server of this cluster is too old for that, so the pod was left unchanged; delete the pod to recreate it", name))
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case jsonpatch.IsRejected(err) || apierrors.IsForbidden(err):
		c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction, fmt.Sprintf("patching %s of the pod: %v", name, err))
	}
	return nil, fmt.Errorf("patching %s of pod %s/%s, %w", name, pod.Namespace, pod.Name, err)
}

// isUnserved reports whether err means that the API server does not serve the subresource. If instead the pod is
// gone, the error contains the pod's name.
func isUnserved(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

// newSize holds the sizes of one container, or of the pod.
type newSize struct {
	container string // the name that sizedContainer returns
	patch     jsonpatch.Patch
}

// newSizes returns, for each container and for the pod, the amounts that are new in the ShadowPod. Other amounts,
// which the provider may have added or changed, stay. Each container has its own patch, so that a rejected patch does
// not prevent the other patches.
func newSizes(spec map[string]any, pod *corev1.Pod, last *asked.Record) []newSize {
	if last == nil {
		return nil
	}
	all := containerSizes("containers", spec, pod.Spec.Containers, last)
	all = append(all, containerSizes("initContainers", spec, pod.Spec.InitContainers, last)...)
	if pod.Spec.Resources != nil {
		if sizes, changed := withAmounts(*pod.Spec.Resources, spec["resources"], last, podLevel, ""); changed {
			patch := jsonpatch.Patch{{Op: "add", Path: "/spec/resources", Value: sizes}}
			all = append(all, newSize{sizedContainer([]string{podLevel, ""}), patch})
		}
	}
	return all
}

// desiredSizes returns the resources of the containers in the given list of a spec, by container name.
func desiredSizes(field string, spec map[string]any) map[string]any {
	desired := map[string]any{}
	for _, container := range containersOf(spec, field) {
		name, _ := container["name"].(string)
		desired[name] = container["resources"]
	}
	return desired
}

func containerSizes(field string, spec map[string]any, actual []corev1.Container, last *asked.Record) (all []newSize) {
	desired := desiredSizes(field, spec)
	for i := range actual {
		name := actual[i].Name
		if sizes, changed := withAmounts(actual[i].Resources, desired[name], last, field, name); changed {
			var patch jsonpatch.Patch
			path := jsonpatch.Pointer("spec", field, strconv.Itoa(i))
			patch.Test(path+"/name", name)
			patch.Add(path+"/resources", sizes)
			all = append(all, newSize{sizedContainer([]string{field, name}), patch})
		}
	}
	return all
}

// withAmounts returns sizes with the limits and requests of desired that are not in the last request.
func withAmounts(sizes corev1.ResourceRequirements, desired any, last *asked.Record, field, container string) (corev1.ResourceRequirements, bool) {
	amounts, ok := amountsOf(desired)
	if !ok {
		return sizes, false
	}
	overlay := func(present corev1.ResourceList, list string, amounts corev1.ResourceList) (corev1.ResourceList, bool) {
		return overlaid(present, amounts, func(name corev1.ResourceName, amount resource.Quantity) bool {
			return last != nil && !last.Content.Has(amount.String(), sizePath(field, container, list, name)...)
		})
	}
	var limits, requests bool
	sizes.Limits, limits = overlay(sizes.Limits, "limits", amounts.Limits)
	sizes.Requests, requests = overlay(sizes.Requests, "requests", amounts.Requests)
	return sizes, limits || requests
}

// overlaid returns the amounts in present, replaced by the amounts of desired if isNew returns true for them.
func overlaid(present, desired corev1.ResourceList, isNew func(corev1.ResourceName, resource.Quantity) bool) (corev1.ResourceList, bool) {
	changed := false
	for name, amount := range desired {
		now, ok := present[name]
		if ok && now.Cmp(amount) == 0 || !isNew(name, amount) {
			continue
		}
		if !changed {
			present, changed = maps.Clone(present), true
		}
		if present == nil {
			present = corev1.ResourceList{}
		}
		present[name] = amount
	}
	return present, changed
}

// ephemeralContainers is a field of a pod's spec.
const ephemeralContainers = "ephemeralContainers"

// newEphemeral returns a patch that adds the ephemeral containers that the pod lacks, as the ShadowPod writes them.
// Existing ephemeral containers cannot be changed or removed.
func newEphemeral(spec map[string]any, pod *corev1.Pod) jsonpatch.Patch {
	known := strings.Split(pod.Annotations[SpentAnnotation], ",")
	for i := range pod.Spec.EphemeralContainers {
		known = append(known, pod.Spec.EphemeralContainers[i].Name)
	}
	var patch jsonpatch.Patch
	for _, container := range containersOf(spec, ephemeralContainers) {
		if name, _ := container["name"].(string); slices.Contains(known, name) {
			continue
		}
		if len(pod.Spec.EphemeralContainers) == 0 && len(patch) == 0 {
			patch.Test("/spec/ephemeralContainers", nil)
			patch.Add("/spec/ephemeralContainers", []any{})
		}
		patch.Add("/spec/ephemeralContainers/-", container)
	}
	return patch
}

func ephemeralNames(spec map[string]any) (names []string) {
	for _, container := range containersOf(spec, ephemeralContainers) {
		if name, ok := container["name"].(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// containersOf returns the containers in a list of a spec. Items that are not objects are left out.
func containersOf(spec map[string]any, field string) (containers []map[string]any) {
	list, _ := spec[field].([]any)
	for _, item := range list {
		if container, ok := item.(map[string]any); ok {
			containers = append(containers, container)
		}
	}
	return containers
}
