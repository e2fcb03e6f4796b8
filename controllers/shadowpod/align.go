// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/ownedfields"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/controllers/tenancy"
	"github.com/refract-project/refract/internal/dynamicclient"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// refusal is what of a pod still differed right after it was written: the
// provider's admission decided otherwise. It is not sent a second time.
type refusal struct {
	pod   types.UID
	patch string
}

// scope is how much of a ShadowPod's generation its pod may have.
type scope int

const (
	// metadataOnly: labels and annotations. The pod has the generation already, or it exceeds a Quota, to which these do not matter.
	metadataOnly scope = iota
	// changeable: also images, the active deadline and tolerations. Something else of the generation could not be written.
	changeable
	// complete: the pod then has everything of the generation.
	complete
)

// align pushes to the pod what may change in the life of a pod: sizes and
// ephemeral containers, which have endpoints of their own, and labels and
// annotations, images, the active deadline, tolerations. What of the former the API server
// refuses is tried again, and holds nothing else up. Of a generation that this cluster does not allow nothing is written, and of one that
// exceeds a Quota labels and annotations alone. align returns after which time to try again, 0 for not before something happens.
func (c *Controller) align(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod) (time.Duration, error) {
	if refusal := oversized(shadow); refusal != nil {
		c.report.Warn(shadow, refusedReason, updateAction, refusal.Error())
		return 0, nil
	}
	if !isOutdated(shadow, pod) && !shadows.LacksMetadata(shadow) && len(difference(shadow, pod, metadataOnly)) == 0 {
		return 0, c.alignMetadata(ctx, shadow, pod) // what is in the cache is enough
	}
	shadow, err := kind.Whole(ctx, c.uncached, shadow)
	if err != nil || shadow == nil {
		return 0, err
	}
	if dynamicclient.Excess(shadow) != "" {
		return 0, nil // it has changed meanwhile, and an event will say so
	}
	if !isOutdated(shadow, pod) {
		return 0, c.alignMetadata(ctx, shadow, pod)
	}
	refusal, err := c.judge(ctx, shadow)
	if refusal != nil || err != nil {
		return 0, c.refuseChange(ctx, shadow, refusal, err)
	}
	refusal, err = c.alignRunning(ctx, shadow, pod)
	switch {
	case refusal != nil:
		return quotaRetry, errors.Join(c.refuse(ctx, shadow, updateAction, refusal), c.alignFields(ctx, shadow, pod, metadataOnly))
	case err != nil:
		return 0, errors.Join(err, c.alignFields(ctx, shadow, pod, changeable))
	}
	return 0, errors.Join(c.admitted(ctx, shadow), c.alignFields(ctx, shadow, pod, complete))
}

// alignMetadata writes the labels and annotations, which are allowed or not like those of a new pod.
func (c *Controller) alignMetadata(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod) error {
	if len(difference(shadow, pod, metadataOnly)) > 0 {
		if refusal, err := c.judge(ctx, shadow); refusal != nil || err != nil {
			return c.refuseChange(ctx, shadow, refusal, err)
		}
	} else {
		c.report.Clear(client.ObjectKeyFromObject(shadow))
	}
	return errors.Join(c.admitted(ctx, shadow), c.alignFields(ctx, shadow, pod, metadataOnly))
}

// refuseChange reports why a change of a running pod was not made, or returns the error because of which this is unknown.
func (c *Controller) refuseChange(ctx context.Context, shadow *unstructured.Unstructured, refusal *tenancy.Refusal, err error) error {
	if err != nil {
		return err
	}
	return c.refuse(ctx, shadow, updateAction, refusal)
}

// alignFields writes what a plain patch of the pod may change.
func (c *Controller) alignFields(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, scope scope) error {
	key := client.ObjectKeyFromObject(shadow)
	changes := difference(shadow, pod, scope)
	if len(changes) == 0 {
		c.refused.Drop(key)
		return nil
	}
	if last, ok := c.refused.Get(key); ok && last == (refusal{pod.UID, changes.String()}) {
		return nil
	}
	patch, err := changes.For(pod.UID)
	if err != nil {
		return err
	}
	written := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = c.client.Patch(ctx, written, patch, client.FieldOwner(wire.ShadowPodFieldManager))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case jsonpatch.IsRejected(err):
		c.refused.Set(key, refusal{pod.UID, changes.String()})
		c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction, "updating the pod: "+err.Error())
		return reconcile.TerminalError(fmt.Errorf("updating pod %s, %w", key, err))
	case apierrors.IsForbidden(err):
		c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction, "updating the pod: "+err.Error())
		return fmt.Errorf("updating pod %s, %w", key, err)
	case err != nil:
		return fmt.Errorf("updating pod %s, %w", key, err)
	}
	if rest := difference(shadow, written, scope); len(rest) > 0 {
		c.refused.Set(key, refusal{pod.UID, rest.String()})
		c.report.Warn(shadow, wire.FailedUpdatePodReason, updateAction,
			"updating the pod: an admission webhook of this cluster changes what was written back; differing: "+rest.String())
	}
	return nil
}

// difference returns what must change in pod.
func difference(shadow *unstructured.Unstructured, pod *corev1.Pod, scope scope) jsonpatch.Patch {
	labels, annotations := podLabels(shadow), shadow.GetAnnotations()
	for _, ours := range ownAnnotations {
		delete(annotations, ours)
	}
	owned := func() ownedfields.Metadata { return ownedfields.Of(pod.ManagedFields, wire.ShadowPodFieldManager) }
	patch := jsonpatch.Strings("/metadata/labels", pod.Labels, labels,
		func(key string) bool { return owned().OwnsLabel(key) })
	patch = append(patch, jsonpatch.Strings("/metadata/annotations", pod.Annotations, annotations,
		func(key string) bool { return !slices.Contains(ownAnnotations, key) && owned().OwnsAnnotation(key) })...)
	if scope == metadataOnly || !isOutdated(shadow, pod) {
		return patch
	}
	return append(patch, specDifference(shadow, pod, len(pod.Annotations)+len(annotations) > 0, scope == complete)...)
}

// isOutdated reports whether the ShadowPod's spec has changed since the pod was
// made from it: see GenerationAnnotation.
func isOutdated(shadow *unstructured.Unstructured, pod *corev1.Pod) bool {
	made := pod.Annotations[GenerationAnnotation]
	return made != generationOf(shadow) && (made != "" || shadow.GetGeneration() > 1)
}

func generationOf(shadow *unstructured.Unstructured) string {
	return strconv.FormatInt(shadow.GetGeneration(), 10)
}

// specDifference compares specs. annotated reports whether the pod has annotations
// by the time these changes are made, done whether it then has this generation's
// spec.
func specDifference(shadow *unstructured.Unstructured, pod *corev1.Pod, annotated, done bool) jsonpatch.Patch {
	spec, ok := podSpec(shadow)
	if !ok {
		return nil
	}
	patch := imageChanges("containers", spec, pod.Spec.Containers)
	patch = append(patch, imageChanges("initContainers", spec, pod.Spec.InitContainers)...)
	patch = append(patch, deadlineChange(spec, pod)...)
	patch = append(patch, newTolerations(spec, pod)...)
	switch {
	case !done:
	case annotated:
		patch.Add("/metadata/annotations"+jsonpatch.Pointer(GenerationAnnotation), generationOf(shadow))
	default:
		patch.Test("/metadata/annotations", nil)
		patch.Add("/metadata/annotations", map[string]string{GenerationAnnotation: generationOf(shadow)})
	}
	return patch
}

func imageChanges(field string, spec map[string]any, actual []corev1.Container) jsonpatch.Patch {
	var patch jsonpatch.Patch
	images := map[string]string{}
	for _, container := range containersOf(spec, field) {
		name, _ := container["name"].(string)
		images[name], _ = container["image"].(string)
	}
	for i := range actual {
		image := images[actual[i].Name]
		if image == "" || image == actual[i].Image {
			continue
		}
		path := jsonpatch.Pointer("spec", field, strconv.Itoa(i))
		patch.Test(path+"/name", actual[i].Name)
		patch.Replace(path+"/image", image)
	}
	return patch
}

// deadlineChange: the API server lets an active deadline only appear or shrink.
func deadlineChange(spec map[string]any, pod *corev1.Pod) jsonpatch.Patch {
	var patch jsonpatch.Patch
	desired, ok := spec["activeDeadlineSeconds"].(int64)
	if now := pod.Spec.ActiveDeadlineSeconds; ok && (now == nil || desired < *now) {
		patch.Add("/spec/activeDeadlineSeconds", desired)
	}
	return patch
}

// newTolerations adds, as they are written in the ShadowPod, the tolerations
// that the pod does not have. The API server lets none be taken away.
func newTolerations(spec map[string]any, pod *corev1.Pod) jsonpatch.Patch {
	var patch jsonpatch.Patch
	desired, _ := spec["tolerations"].([]any)
	for _, item := range desired {
		fields, _ := item.(map[string]any)
		var toleration corev1.Toleration
		if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &toleration) != nil || tolerates(pod, &toleration) {
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

// tolerates compares without tolerationSeconds: the pod may have had them
// shortened, and a second toleration of the same taint would mean nothing.
func tolerates(pod *corev1.Pod, toleration *corev1.Toleration) bool {
	for i := range pod.Spec.Tolerations {
		if pod.Spec.Tolerations[i].MatchToleration(toleration) {
			return true
		}
	}
	return false
}
