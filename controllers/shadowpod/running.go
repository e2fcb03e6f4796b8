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
	"github.com/refract-project/refract/internal/jsonpatch"
)

// alignRunning changes what a plain patch may not: sizes (in-place resize) and
// ephemeral containers (kubectl debug). The cache holds neither.
func (c *Controller) alignRunning(ctx context.Context, shadow *unstructured.Unstructured, cached *corev1.Pod) error {
	spec, ok := podSpec(shadow)
	if !ok {
		return nil
	}
	refusal, err := c.judge(ctx, shadow)
	if err == nil && refusal == nil {
		refusal, err = c.checkQuota(ctx, shadow)
	}
	if err != nil {
		return err
	}
	if refusal != nil {
		c.report.Warn(shadow, refusedReason, updateAction, refusal.Error())
		return nil
	}
	pod := &corev1.Pod{}
	if err := c.uncached.Get(ctx, client.ObjectKeyFromObject(shadow), pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	if pod.UID != cached.UID || pod.DeletionTimestamp != nil {
		return nil // an event will say so
	}
	problems := []error{c.alignEphemeral(ctx, shadow, spec, pod)}
	for _, size := range newSizes(spec, pod) {
		problems = append(problems, c.patchSubresource(ctx, shadow, pod, "resize", size))
	}
	return errors.Join(problems...)
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
	return c.patchSubresource(ctx, shadow, pod, "ephemeralcontainers", changes)
}

func (c *Controller) patchSubresource(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, name string, changes jsonpatch.Patch) error {
	if len(changes) == 0 {
		return nil
	}
	patch, err := changes.For(pod.UID)
	if err != nil {
		return err
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = c.client.SubResource(name).Patch(ctx, target, patch, client.FieldOwner(wire.ShadowPodFieldManager))
	switch {
	case err == nil:
		return nil
	case isUnserved(err):
		c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction, fmt.Sprintf(
			"patching %s of the pod: the API server of this cluster is too old for that, so the pod was left unchanged; delete the pod to recreate it", name))
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case jsonpatch.IsRejected(err) || apierrors.IsForbidden(err):
		c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction, fmt.Sprintf("patching %s of the pod: %v", name, err))
	}
	return fmt.Errorf("patching %s of pod %s/%s, %w", name, pod.Namespace, pod.Name, err)
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

func containerSizes(field string, spec map[string]any, actual []corev1.Container) (patches []jsonpatch.Patch) {
	desired := map[string]any{}
	for _, container := range containersOf(spec, field) {
		name, _ := container["name"].(string)
		desired[name] = container["resources"]
	}
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
