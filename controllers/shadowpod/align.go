// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/ownedfields"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/internal/dynamicclient"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// refusal is a patch of a pod. The API server rejected the patch, or the provider's admission changed it so that it had
// no effect. The same patch is not sent again before the time in the field until. After that it is sent again, because
// admission may have changed.
type refusal struct {
	pod   types.UID
	patch string
	until time.Time
}

// covers reports whether the given patch of the given pod was refused.
func (r refusal) covers(pod types.UID, patch string) bool { return r.pod == pod && r.patch == patch }

// scope determines which parts of a ShadowPod's generation are applied to its pod.
type scope int

const (
	// metadataOnly covers labels and annotations. It is used if the pod already has the generation, or if the
	// generation exceeds a Quota, because labels and annotations do not affect Quotas.
	metadataOnly scope = iota
	// changeable also covers images, the active deadline and tolerations. It is used if another part of the
	// generation could not be written.
	changeable
	// complete means that the pod has the whole generation after the patch.
	complete
)

// align applies a ShadowPod's changes to its running pod. First it writes sizes and ephemeral containers, which have
// their own subresources, then labels, annotations, images, the active deadline and tolerations. Rejected sizes and
// ephemeral containers are retried, and do not delay the other changes. If this cluster does not allow a generation,
// nothing is written. If the generation exceeds a Quota, only labels and annotations are written. align returns the
// delay until the next attempt; 0 means that it waits for an event.
func (c *Controller) align(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod) (time.Duration, error) {
	if refusal := oversized(shadow); refusal != nil {
		c.report.Warn(shadow, refusedReason, updateAction, refusal.Error())
		return 0, nil
	}
	if err := c.ensureBaseline(ctx, shadow, pod); err != nil {
		return 0, err
	}
	if !isOutdated(shadow, pod) && !shadows.LacksMetadata(shadow) && len(difference(shadow, pod, c.lastAsked(pod), metadataOnly, nil)) == 0 {
		return c.alignMetadata(ctx, shadow, pod) // the cached pod is recent enough for metadata
	}
	shadow, err := kind.Whole(ctx, c.uncached, shadow)
	if err != nil || shadow == nil {
		return 0, err
	}
	if dynamicclient.Excess(shadow) != "" {
		return 0, nil // the ShadowPod has changed in the meantime, so another event will follow
	}
	if !isOutdated(shadow, pod) {
		return c.alignMetadata(ctx, shadow, pod)
	}
	refusal, err := c.judge(ctx, shadow)
	if refusal != nil || err != nil {
		return c.refuseForNow(ctx, shadow, updateAction, refusal, err)
	}
	pending, refusal, err := c.alignRunning(ctx, shadow, pod)
	switch {
	case refusal != nil:
		_, err := c.alignFields(ctx, shadow, pod, metadataOnly, nil)
		return quotaRetryInterval, errors.Join(c.refuse(ctx, shadow, updateAction, refusal), err)
	case err != nil:
		_, other := c.alignFields(ctx, shadow, pod, changeable, pending)
		return 0, errors.Join(err, other)
	}
	wait, err := c.alignFields(ctx, shadow, pod, complete, nil)
	return wait, errors.Join(c.admitted(ctx, shadow), err)
}

// alignMetadata writes the labels and annotations. The policy for labels and annotations of new pods applies to them,
// too.
func (c *Controller) alignMetadata(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod) (time.Duration, error) {
	if len(difference(shadow, pod, c.lastAsked(pod), metadataOnly, nil)) > 0 {
		if refusal, err := c.judge(ctx, shadow); refusal != nil || err != nil {
			return c.refuseForNow(ctx, shadow, updateAction, refusal, err)
		}
	} else {
		c.report.Clear(client.ObjectKeyFromObject(shadow))
	}
	wait, err := c.alignFields(ctx, shadow, pod, metadataOnly, nil)
	return wait, errors.Join(c.admitted(ctx, shadow), err)
}

// alignFields writes the fields that a normal patch of the pod may change. Sizes of the containers in pending are not
// recorded yet. It returns the delay until a refused change is tried again, or 0 if nothing was refused.
func (c *Controller) alignFields(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, scope scope, pending []string) (time.Duration, error) {
	key := client.ObjectKeyFromObject(shadow)
	last := c.lastAsked(pod)
	changes := difference(shadow, pod, last, scope, pending)
	if len(changes) == 0 {
		c.accepted(key)
		c.noteAligned(shadow, pod, last, scope, pending)
		return 0, nil
	}
	if refused, ok := c.refused.Get(key); ok && refused.covers(pod.UID, changes.String()) {
		if wait := refused.until.Sub(c.now()); wait > 0 {
			return wait, nil
		}
	}
	if err := c.brake.MayChange(ctx, shadow, updateAction, "", changes); err != nil {
		return 0, err
	}
	patch, err := changes.For(pod.UID)
	if err != nil {
		return 0, err
	}
	written := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = c.client.Patch(ctx, written, patch, client.FieldOwner(wire.ShadowPodFieldManager))
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case jsonpatch.IsRejected(err):
		c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction, "updating the pod: "+err.Error())
		return 0, report.Later(fmt.Errorf("updating pod %s, %w", key, err), c.refuseUntil(key, pod.UID, changes))
	case apierrors.IsForbidden(err):
		c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction, "updating the pod: "+err.Error())
		return 0, fmt.Errorf("updating pod %s, %w", key, err)
	case err != nil:
		return 0, fmt.Errorf("updating pod %s, %w", key, err)
	}
	c.brake.Changed(shadow, "", changes)
	if last == nil && scope == complete {
		c.reportUndecided(shadow, pod)
	}
	c.noteAligned(shadow, written, last, scope, pending)
	rest := difference(shadow, written, c.lastAsked(written), scope, pending)
	if len(rest) == 0 {
		c.accepted(key)
		return 0, nil
	}
	c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction,
		"updating the pod: an admission webhook of this cluster changes what was written back; differing: "+rest.String())
	return c.refuseUntil(key, pod.UID, rest), nil
}

// refuseUntil records that changes to the pod were refused, and returns the delay before the next attempt.
func (c *Controller) refuseUntil(key types.NamespacedName, pod types.UID, changes jsonpatch.Patch) time.Duration {
	wait := c.invalid.Next(key, string(pod)+changes.String())
	c.refused.Set(key, refusal{pod, changes.String(), c.now().Add(wait)})
	return wait
}

// accepted drops the recorded refusals of the pod.
func (c *Controller) accepted(key types.NamespacedName) {
	c.refused.Drop(key)
	c.invalid.Drop(key)
}

// difference returns the patch that applies the ShadowPod to pod. A field whose requested value is the same as in the
// last request keeps the value that another client has set (see package asked).
func difference(shadow *unstructured.Unstructured, pod *corev1.Pod, last *asked.Record, scope scope, pending []string) jsonpatch.Patch {
	owned := sync.OnceValue(func() ownedfields.Metadata { return ownedfields.Of(pod.ManagedFields, wire.ShadowPodFieldManager) })
	ownsLabel := func(key string) bool { return owned().OwnsLabel(key) }
	ownsAnnotation := func(key string) bool { return !slices.Contains(ownAnnotations, key) && owned().OwnsAnnotation(key) }
	annotations := last.Merge(asked.Annotations, pod.Annotations, requestedAnnotations(shadow), ownsAnnotation)

	patch := jsonpatch.Strings("/metadata/labels", pod.Labels, last.Merge(asked.Labels, pod.Labels, podLabels(shadow), ownsLabel), ownsLabel)
	if scope > metadataOnly && isOutdated(shadow, pod) {
		patch = append(patch, specDifference(shadow, pod, last)...)
		if scope == complete {
			annotations = withAnnotation(annotations, GenerationAnnotation, generationOf(shadow))
		}
	}
	changes := slices.Concat(patch, jsonpatch.Strings("/metadata/annotations", pod.Annotations, annotations, ownsAnnotation))
	record := nextRecord(shadow, pod, last, scope, pending).Text()
	if record == "" || len(changes) == 0 && pod.Annotations[asked.Annotation] == "" {
		return changes // a pod without a record gets its record with the next change
	}
	annotations = withAnnotation(annotations, asked.Annotation, record)
	return append(patch, jsonpatch.Strings("/metadata/annotations", pod.Annotations, annotations, ownsAnnotation)...)
}

func withAnnotation(annotations map[string]string, key, value string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	return annotations
}

// isOutdated reports whether the ShadowPod's spec has changed since its pod was created from it (see
// GenerationAnnotation).
func isOutdated(shadow *unstructured.Unstructured, pod *corev1.Pod) bool {
	made := pod.Annotations[GenerationAnnotation]
	return made != generationOf(shadow) && (made != "" || shadow.GetGeneration() > 1)
}

func generationOf(shadow *unstructured.Unstructured) string {
	return strconv.FormatInt(shadow.GetGeneration(), 10)
}

// specDifference returns the changes to those fields of a running pod that an ordinary patch may change. It returns no
// changes if the last request is unknown.
func specDifference(shadow *unstructured.Unstructured, pod *corev1.Pod, last *asked.Record) jsonpatch.Patch {
	spec, ok := podSpec(shadow)
	if !ok || last == nil {
		return nil
	}
	patch := imageChanges("containers", spec, pod.Spec.Containers, last)
	patch = append(patch, imageChanges("initContainers", spec, pod.Spec.InitContainers, last)...)
	patch = append(patch, deadlineChange(spec, pod, last)...)
	return append(patch, newTolerations(spec, pod, last)...)
}

func imageChanges(field string, spec map[string]any, actual []corev1.Container, last *asked.Record) jsonpatch.Patch {
	var patch jsonpatch.Patch
	images := map[string]string{}
	for _, container := range containersOf(spec, field) {
		name, _ := container["name"].(string)
		images[name], _ = container["image"].(string)
	}
	for i := range actual {
		image, name := images[actual[i].Name], actual[i].Name
		if image == "" || image == actual[i].Image || last.Content.Has(image, imagePath(field, name)...) {
			continue
		}
		path := jsonpatch.Pointer("spec", field, strconv.Itoa(i))
		patch.Test(path+"/name", name)
		patch.Replace(path+"/image", image)
	}
	return patch
}

// deadlineChange returns the change to the active deadline. The API server only allows it to be set or shortened.
func deadlineChange(spec map[string]any, pod *corev1.Pod, last *asked.Record) jsonpatch.Patch {
	var patch jsonpatch.Patch
	desired, ok := spec[deadlineField].(int64)
	if !ok || last.Content.Has(strconv.FormatInt(desired, 10), deadlineField) {
		return nil
	}
	if now := pod.Spec.ActiveDeadlineSeconds; now == nil || desired < *now {
		patch.Add("/spec/activeDeadlineSeconds", desired)
	}
	return patch
}

// newTolerations returns a patch that adds the tolerations that the pod lacks, as the ShadowPod writes them. The API
// server does not allow the removal of tolerations.
func newTolerations(spec map[string]any, pod *corev1.Pod, last *asked.Record) jsonpatch.Patch {
	var patch jsonpatch.Patch
	desired, _ := spec["tolerations"].([]any)
	for _, item := range desired {
		fields, _ := item.(map[string]any)
		var toleration corev1.Toleration
		if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &toleration) != nil || tolerates(pod, &toleration) ||
			last.Content.Has("", tolerationPath(item)...) {
			continue
		}
		if pod.Spec.Tolerations == nil && len(patch) == 0 {
			patch.Test("/spec/tolerations", nil)
			patch.Add("/spec/tolerations", []any{})
		}
		patch.Add("/spec/tolerations/-", fields)
	}
	return patch
}

// tolerates reports whether the pod has the toleration. It ignores tolerationSeconds: the pod's value may have been
// shortened, and a second toleration of the same taint would have no effect.
func tolerates(pod *corev1.Pod, toleration *corev1.Toleration) bool {
	for i := range pod.Spec.Tolerations {
		if pod.Spec.Tolerations[i].MatchToleration(toleration) {
			return true
		}
	}
	return false
}
