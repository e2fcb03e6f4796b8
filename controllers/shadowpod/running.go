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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/tenancy"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// alignRunning changes what a plain patch may not: sizes (in-place resize) and
// ephemeral containers (kubectl debug). The cache holds neither. It returns why the pod must not have what shadow asks for; nothing is changed then.
func (c *Controller) alignRunning(ctx context.Context, shadow *unstructured.Unstructured, cached *corev1.Pod) (*tenancy.Refusal, error) {
	spec, ok := podSpec(shadow)
	if !ok {
		return nil, nil
	}
	pod := &corev1.Pod{}
	if err := c.uncached.Get(ctx, client.ObjectKeyFromObject(shadow), pod); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if pod.UID != cached.UID || pod.DeletionTimestamp != nil {
		return nil, nil // an event will say so
	}
	sizes := newSizes(spec, pod)
	if len(sizes) > 0 || replacesImages(spec, pod) {
		if refusal, err := c.reserveChange(ctx, shadow, pod, spec); refusal != nil || err != nil {
			return refusal, err
		}
	}
	return nil, errors.Join(c.alignEphemeral(ctx, shadow, spec, pod), c.resize(ctx, shadow, pod, sizes))
}

// resize writes the new sizes, for which there is a reservation, and ends that.
func (c *Controller) resize(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, sizes []jsonpatch.Patch) error {
	if len(sizes) > 1 {
		resized, err := c.resizeAtOnce(ctx, pod, sizes)
		if resized != nil {
			c.settleQuota(resized)
			return nil
		}
		if !isDecided(err) {
			return err
		}
	}
	var problems []error
	var written *corev1.Pod
	unknown := false
	for _, size := range sizes {
		resized, err := c.patchSubresource(ctx, shadow, pod, "resize", size)
		if resized != nil {
			written = resized
		}
		unknown = unknown || err != nil && !isDecided(err)
		problems = append(problems, err)
	}
	switch {
	case unknown: // the next attempt decides
	case written != nil:
		c.settleQuota(written)
	default:
		c.releaseQuota(client.ObjectKeyFromObject(shadow))
	}
	return errors.Join(problems...)
}

// changedPod returns the pod as the ShadowPod wants it, as far as that matters to a Quota, and whether it becomes another one.
func changedPod(spec map[string]any, pod *corev1.Pod) (changed *corev1.Pod, replaces bool) {
	changed = pod.DeepCopy()
	for field, containers := range map[string][]corev1.Container{"containers": changed.Spec.Containers, "initContainers": changed.Spec.InitContainers} {
		desired := desiredSizes(field, spec)
		for i := range containers {
			containers[i].Resources, _ = withAmounts(containers[i].Resources, desired[containers[i].Name])
		}
	}
	if changed.Spec.Resources != nil {
		*changed.Spec.Resources, _ = withAmounts(*changed.Spec.Resources, spec["resources"])
	}
	return changed, replacesImages(spec, pod)
}

func replacesImages(spec map[string]any, pod *corev1.Pod) bool {
	return len(imageChanges("containers", spec, pod.Spec.Containers))+len(imageChanges("initContainers", spec, pod.Spec.InitContainers)) > 0
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

// patchSubresource returns the pod that was written, nil if none was.
func (c *Controller) patchSubresource(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, name string, changes jsonpatch.Patch) (*corev1.Pod, error) {
	patch, err := changes.For(pod.UID)
	if err != nil {
		return nil, err
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = c.client.SubResource(name).Patch(ctx, target, patch, client.FieldOwner(wire.ShadowPodFieldManager))
	switch {
	case err == nil:
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

// isUnserved distinguishes a subresource that the API server does not know from a pod
// that is gone: only the latter is named.
func isUnserved(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

// newSizes gives each container, and the pod, the amounts that the ShadowPod
// names; others, which the provider's defaults may have added, stay. One that is
// refused keeps no other back.
func newSizes(spec map[string]any, pod *corev1.Pod) []jsonpatch.Patch {
	patches := containerSizes("containers", spec, pod.Spec.Containers)
	patches = append(patches, containerSizes("initContainers", spec, pod.Spec.InitContainers)...)
	if pod.Spec.Resources != nil {
		if sizes, changed := withAmounts(*pod.Spec.Resources, spec["resources"]); changed {
			patches = append(patches, jsonpatch.Patch{{Op: "add", Path: "/spec/resources", Value: sizes}})
		}
	}
	return patches
}

// desiredSizes returns the resources of the containers in one of a spec's lists, by name.
func desiredSizes(field string, spec map[string]any) map[string]any {
	desired := map[string]any{}
	for _, container := range containersOf(spec, field) {
		name, _ := container["name"].(string)
		desired[name] = container["resources"]
	}
	return desired
}

func containerSizes(field string, spec map[string]any, actual []corev1.Container) (patches []jsonpatch.Patch) {
	desired := desiredSizes(field, spec)
	for i := range actual {
		if sizes, changed := withAmounts(actual[i].Resources, desired[actual[i].Name]); changed {
			var patch jsonpatch.Patch
			path := jsonpatch.Pointer("spec", field, strconv.Itoa(i))
			patch.Test(path+"/name", actual[i].Name)
			patch.Add(path+"/resources", sizes)
			patches = append(patches, patch)
		}
	}
	return patches
}

// withAmounts returns sizes with the limits and requests of desired.
func withAmounts(sizes corev1.ResourceRequirements, desired any) (corev1.ResourceRequirements, bool) {
	fields, _ := desired.(map[string]any)
	var amounts corev1.ResourceRequirements
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &amounts) != nil {
		return sizes, false
	}
	var limits, requests bool
	sizes.Limits, limits = overlaid(sizes.Limits, amounts.Limits)
	sizes.Requests, requests = overlaid(sizes.Requests, amounts.Requests)
	return sizes, limits || requests
}

func overlaid(present, desired corev1.ResourceList) (corev1.ResourceList, bool) {
	changed := false
	for name, amount := range desired {
		now, ok := present[name]
		if ok && now.Cmp(amount) == 0 {
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

// ephemeralContainers is the field of a pod's spec.
const ephemeralContainers = "ephemeralContainers"

// newEphemeral adds the ephemeral containers that the pod does not have, as they
// are written in the ShadowPod. None can be changed or taken away.
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

// containersOf returns one of a spec's lists of containers; what is none is left out.
func containersOf(spec map[string]any, field string) (containers []map[string]any) {
	list, _ := spec[field].([]any)
	for _, item := range list {
		if container, ok := item.(map[string]any); ok {
			containers = append(containers, container)
		}
	}
	return containers
}
