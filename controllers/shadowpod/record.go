// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
)

// baseline is the record of a pod whose annotations do not contain one, because an earlier version created the pod or
// admission removed the annotation.
type baseline struct {
	pod    types.UID
	record *asked.Record
}

// lastAsked returns the record of the last request for the pod, or nil if it is not known.
func (c *Controller) lastAsked(pod *corev1.Pod) *asked.Record {
	if record := asked.Read(pod.Annotations); record != nil {
		return record
	}
	if known, ok := c.baselines.Get(client.ObjectKeyFromObject(pod)); ok && known.pod == pod.UID {
		return known.record
	}
	return nil
}

// ensureBaseline records the request for a pod without a record, as long as the ShadowPod is unchanged. Later changes
// to the ShadowPod can then be distinguished from changes that other clients make to the pod, without writing to each
// of these pods.
func (c *Controller) ensureBaseline(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod) error {
	if c.lastAsked(pod) != nil || isOutdated(shadow, pod) {
		return nil
	}
	whole, err := kind.Whole(ctx, c.uncached, shadow)
	if err != nil || whole == nil || isOutdated(whole, pod) {
		return err
	}
	spec, _ := podSpec(whole)
	c.setBaseline(pod, &asked.Record{Content: contentValues(spec)})
	return nil
}

func (c *Controller) setBaseline(pod *corev1.Pod, record *asked.Record) {
	c.baselines.Set(client.ObjectKeyFromObject(pod), baseline{pod.UID, record})
}

// noteAligned updates the record in memory after a change. Once the pod has its own record in an annotation, it drops
// the record in memory.
func (c *Controller) noteAligned(shadow *unstructured.Unstructured, pod *corev1.Pod, last *asked.Record, scope scope, pending []string) {
	if asked.Read(pod.Annotations) != nil {
		c.baselines.Drop(client.ObjectKeyFromObject(pod))
		return
	}
	if next := nextRecord(shadow, pod, last, scope, pending); next != nil {
		c.setBaseline(pod, next)
	}
}

// nextRecord returns the record of the pod after the changes within scope, or nil if the last request is not known.
// Sizes of the containers in pending are not included.
func nextRecord(shadow *unstructured.Unstructured, pod *corev1.Pod, last *asked.Record, scope scope, pending []string) *asked.Record {
	if !isOutdated(shadow, pod) {
		scope = metadataOnly
	}
	if last == nil && scope != complete {
		return nil
	}
	next := &asked.Record{Metadata: asked.MetadataValues(podLabels(shadow), requestedAnnotations(shadow))}
	if scope == metadataOnly {
		next.Content = last.Content
		return next
	}
	spec, _ := podSpec(shadow)
	next.Content = contentValues(spec)
	for _, container := range pending {
		eachSize(spec, func(_ string, path ...string) {
			if sizedContainer(path) == container {
				next.Content.Forget(path...)
				next.Content.Keep(last.Content, path...)
			}
		})
	}
	return next
}

// reportUndecided reports the fields that differ between a pod and its ShadowPod, if it is unknown which side has
// changed them.
func (c *Controller) reportUndecided(shadow *unstructured.Unstructured, pod *corev1.Pod) {
	spec, _ := podSpec(shadow)
	nothing := &asked.Record{Metadata: asked.Values{}, Content: asked.Values{}}
	if len(specDifference(shadow, pod, nothing)) == 0 && len(newSizes(spec, pod, nothing)) == 0 {
		return
	}
	c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction, "the images, resources, deadline or tolerations of the running pod differ from those of the ShadowPod. "+
		"The pod was created by an earlier version, and the ShadowPod was changed while no controller manager ran, so it is not known whether this cluster has changed them. They were left unchanged; delete the pod to recreate it")
}

// contentValues returns the values of a pod's spec that may be changed while it runs.
func contentValues(spec map[string]any) asked.Values {
	values := asked.Values{}
	for _, field := range containerFields {
		for _, container := range containersOf(spec, field) {
			name, _ := container["name"].(string)
			image, _ := container["image"].(string)
			values.Set(image, imagePath(field, name)...)
		}
	}
	if deadline, ok := spec["activeDeadlineSeconds"].(int64); ok {
		values.Set(strconv.FormatInt(deadline, 10), deadlineField)
	}
	tolerations, _ := spec["tolerations"].([]any)
	for _, toleration := range tolerations {
		values.Set("", tolerationPath(toleration)...)
	}
	eachSize(spec, func(amount string, path ...string) { values.Set(amount, path...) })
	return values
}

// containerFields are the fields of a pod's spec with its containers, except ephemeral containers.
var containerFields = []string{"containers", "initContainers"}

const deadlineField = "activeDeadlineSeconds"

func imagePath(field, container string) []string { return []string{field, container, "image"} }

func tolerationPath(toleration any) []string {
	text, err := json.Marshal(toleration) // json.Marshal sorts the fields
	if err != nil {
		return nil
	}
	return []string{"tolerations", string(text)}
}

// podLevel is used in paths in place of a container list. It stands for the resources of the pod itself.
const podLevel = "pod"

func sizePath(field, container, list string, resource corev1.ResourceName) []string {
	return []string{field, container, "resources", list, string(resource)}
}

// sizedContainer returns the container of a path that sizePath returned.
func sizedContainer(path []string) string { return path[0] + "/" + path[1] }

// eachSize calls f for each amount of a resource in a pod's spec, with the amount and its path.
func eachSize(spec map[string]any, f func(amount string, path ...string)) {
	each := func(field, container string, resources any) {
		amounts, _ := amountsOf(resources)
		for list, sizes := range map[string]corev1.ResourceList{"limits": amounts.Limits, "requests": amounts.Requests} {
			for name, amount := range sizes {
				f(amount.String(), sizePath(field, container, list, name)...)
			}
		}
	}
	for _, field := range containerFields {
		for _, container := range containersOf(spec, field) {
			name, _ := container["name"].(string)
			each(field, name, container["resources"])
		}
	}
	each(podLevel, "", spec["resources"])
}

// amountsOf decodes the resources of a container, or of a pod.
func amountsOf(resources any) (amounts corev1.ResourceRequirements, ok bool) {
	fields, _ := resources.(map[string]any)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &amounts) != nil {
		return corev1.ResourceRequirements{}, false
	}
	return amounts, true
}
