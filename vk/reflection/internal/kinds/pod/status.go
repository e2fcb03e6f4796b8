// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/internal/podend"
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// showStatus reflects the status of the provider's pod to ours.
func (h *Handler) showStatus(ctx context.Context, w *engine.Worker, v *podView) error {
	if v.remote == nil || engine.StandsForAnother(v.remote, v.local) {
		return h.showEnd(ctx, w, v)
	}
	if why := interruption(v); why != "" {
		return h.showInterruption(ctx, w, v, why)
	}
	if wait := h.settling(v); wait > 0 {
		return &engine.RetryAfter{After: wait}
	}
	next, err := h.incomingStatus(ctx, w, v)
	if err != nil {
		return err
	}
	m := Marks{Offloaded: true, Restarts: v.state.restarts.Note()}
	if next == nil {
		next = v.status
	} else {
		next = v.generations().Translate(next, v.status)
		noted, _ := raw.Annotations(v.local.Object)[GatesAnnotation].(string)
		next, m.Gates = pods.Conditions(next, v.status, readinessGates(v.local), followedGates(v.local), noted, h.Clock().Now())
	}
	if raw.Equal(next, v.status) || h.isAccepted(v.local, next) {
		if raw.Labels(v.local.Object)[wire.OffloadedPodLabel] == "true" {
			v.state.due = time.Time{}
			return nil
		}
		next = nil // only the label is missing
	}
	if !isUrgent(v, next) {
		if wait := h.batches.wait(h.Clock().Now(), &v.state.due); wait > 0 {
			return &engine.RetryAfter{After: wait}
		}
	}
	if wait := h.Pace(v.key); wait > 0 {
		return &engine.RetryAfter{After: wait}
	}
	if err := h.PatchStatus(ctx, w, v.local, next, m); err != nil {
		return err
	}
	v.state.due = time.Time{}
	return nil
}

func readinessGates(pod *unstructured.Unstructured) (types []string) {
	spec, _ := pod.Object["spec"].(map[string]any)
	list, _ := spec["readinessGates"].([]any)
	for _, item := range list {
		gate, _ := item.(map[string]any)
		if name, ok := gate["conditionType"].(string); ok {
			types = append(types, name)
		}
	}
	return types
}

// followedGates returns the readiness gates whose conditions are taken from the provider.
func followedGates(pod *unstructured.Unstructured) (followed []string) {
	text, _ := raw.Annotations(pod.Object)[RemoteGatesAnnotation].(string)
	for _, gate := range strings.Split(text, ",") {
		if gate = strings.TrimSpace(gate); gate != "" {
			followed = append(followed, gate)
		}
	}
	return followed
}

// RecreatingReason is the reason why a pod is not ready if its counterpart on the provider was stopped and is created
// again.
const RecreatingReason = "RemotePodRecreating"

// interruption returns the reason why the status of the provider's pod does not apply to ours, or "" if it does. It
// does not apply if the provider's pod is being stopped, which does not end ours, or is a replacement that does not run
// yet. While our own pod is being deleted, the end of the provider's pod is also its own.
func interruption(v *podView) string {
	if v.local.GetDeletionTimestamp() != nil {
		return ""
	}
	status, _ := v.remote.Object["status"].(map[string]any)
	phase := pods.Phase(status)
	switch {
	case v.remote.GetDeletionTimestamp() != nil || podend.Finished(phase):
		if finalPhase(v.remote) == "" {
			return "the provider has stopped the pod; it is being recreated"
		}
	case pods.Phase(v.status) == corev1.PodRunning && (phase == corev1.PodPending || phase == ""):
		why := "the provider has recreated the pod; it is not running yet"
		if scheduled := pods.Condition(status, corev1.PodScheduled); scheduled["status"] == string(corev1.ConditionFalse) {
			why = fmt.Sprintf("%s: %v", why, scheduled["message"])
		}
		return why
	}
	return ""
}

// finalPhase returns podend.FinalPhase of a pod. A pod that cannot be decoded has not ended, because a finished status
// is never changed again.
func finalPhase(pod *unstructured.Unstructured) corev1.PodPhase {
	typed := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod.Object, typed); err != nil {
		return ""
	}
	return podend.FinalPhase(typed)
}

// showInterruption shows the last status of the pod, but not ready.
func (h *Handler) showInterruption(ctx context.Context, w *engine.Worker, v *podView, why string) error {
	next := pods.Interrupt(v.status, RecreatingReason, why, h.Clock().Now())
	if raw.Equal(next, v.status) {
		return nil
	}
	return h.PatchStatus(ctx, w, v.local, next, Marks{Offloaded: true})
}

// showAbsence shows a pod that has run as not ready if another client keeps deleting its ShadowPod.
func (h *Handler) showAbsence(ctx context.Context, w *engine.Worker, v *podView) error {
	switch {
	case v.shadow != nil || pods.Untouched(v.status):
		return nil
	case v.remote != nil:
		return h.showStatus(ctx, w, v)
	}
	return h.showInterruption(ctx, w, v, "another client of the provider deletes the ShadowPod, so it is not recreated at the moment: see the Events of the pod")
}

// showEnd shows the final phase from the ShadowPod when the provider's pod is gone for good. A pod that is gone for a
// moment is shown as not ready, because the provider creates it again.
func (h *Handler) showEnd(ctx context.Context, w *engine.Worker, v *podView) error {
	if v.shadow == nil || v.remote != nil {
		return nil
	}
	phase, _, _ := unstructured.NestedString(v.shadow.Object, "status", "phase")
	if podend.Finished(pods.Phase(v.status)) {
		return nil
	}
	if !podend.Finished(corev1.PodPhase(phase)) {
		if v.local.GetDeletionTimestamp() != nil {
			return nil
		}
		return h.showInterruption(ctx, w, v, "the provider's pod is gone; it is being recreated")
	}
	switch there, err := h.isThere(ctx, v); {
	case err != nil:
		return err
	case there:
		return &engine.RetryAfter{After: unseen}
	}
	next := pods.Reject(v.status, corev1.PodPhase(phase), wire.RemotePodTerminatedReason, "", h.Clock().Now())
	return h.PatchStatus(ctx, w, v.local, next, Marks{Offloaded: true})
}

// unseen is the time that the watch gets to deliver a pod that exists.
const unseen = time.Second

// isThere checks with the provider's API server whether a pod exists that the cache does not have: the watch of pods
// may be behind the watch of ShadowPods. The status of a finished pod is final, and only the pod itself has the exit
// codes of its containers.
func (h *Handler) isThere(ctx context.Context, v *podView) (there bool, err error) {
	err = h.CallRemote(ctx, func(ctx context.Context) error {
		pod, err := h.Remote().Resource(podsResource).Namespace(v.scope.RemoteNamespace()).Get(ctx, h.RemoteName(v.key.Name), metav1.GetOptions{})
		there = err == nil && h.Managed(pod) && !engine.StandsForAnother(pod, v.local)
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting pod %s/%s, %w", v.scope.RemoteNamespace(), v.key.Name, err)
	}
	return there, nil
}

// incomingStatus runs the chain on the provider's pod and adapts the result to this cluster. It returns nil if a plugin
// keeps the present status.
func (h *Handler) incomingStatus(ctx context.Context, w *engine.Worker, v *podView) (map[string]any, error) {
	remoteStatus, _ := v.remote.Object["status"].(map[string]any)
	root := maps.Clone(v.scope.Context(host.Incoming))
	root["local"] = v.local.Object
	if raw.Labels(v.local.Object)[wire.RemoteUnavailableLabel] == "true" {
		root["remoteUnavailable"], root["now"] = true, h.Clock().Now().UTC().Format(time.RFC3339)
	}
	if noted, ok := raw.Annotations(v.local.Object)[RestartsAnnotation].(string); ok {
		v.state.restarts.Recall(noted)
	}
	if extra := v.state.restarts.Extra(string(v.remote.GetUID()), v.status, remoteStatus); len(extra) > 0 {
		counts := make(map[string]any, len(extra))
		for name, n := range extra {
			counts[name] = n
		}
		root["extraRestarts"] = counts
	}
	outcome, err := h.Mutate(ctx, w, host.Incoming, v.key.Namespace, v.remote.Object, root)
	if err != nil {
		return nil, err
	}
	h.Warnings(w, v.local, outcome)
	if outcome.Skipped {
		return nil, nil
	}
	next, ok := w.Doc.Root().View().Field("status").Value().(map[string]any)
	if !ok {
		return nil, &engine.OutputError{Problem: "the incoming chain returned a status that is not an object"}
	}
	spec, _ := v.local.Object["spec"].(map[string]any)
	hostNetwork, _ := spec["hostNetwork"].(bool)
	next, omitted := h.withAllowedIPs(next, hostNetwork)
	if len(omitted) > 0 {
		h.WarnOfAddresses(w, v.local, omitted)
	}
	return engine.CutStatus(pods.AdaptStatus(next, v.status, spec)), nil
}

// settling returns how long to wait before the status of a pod that the provider has just accepted is written. Most
// pods are running a moment later. Problems are shown at once.
func (h *Handler) settling(v *podView) time.Duration {
	status, _ := v.remote.Object["status"].(map[string]any)
	if !pods.Untouched(status) || unschedulable(status) {
		return 0
	}
	now := h.Clock().Now()
	if v.state.held != v.remote.GetUID() {
		v.state.held, v.state.since = v.remote.GetUID(), now
	}
	return h.Options().SettleAfter - now.Sub(v.state.since)
}

func unschedulable(status map[string]any) bool {
	conditions, _ := status["conditions"].([]any)
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		if condition["type"] == string(corev1.PodScheduled) && condition["status"] == string(corev1.ConditionFalse) {
			return true
		}
	}
	return false
}

// Marks are annotations of a pod that are written together with its status, in one request.
type Marks struct {
	Offloaded bool   // set the label of offloaded pods
	Restarts  string // value of RestartsAnnotation, "" leaves it unchanged
	Gates     string // value of GatesAnnotation, "" leaves it unchanged
}

// PatchStatus writes a status, or keeps the present one if it is nil, together with the marks. A concurrent change of
// other metadata of the pod is not a conflict. A concurrent change of a condition is, because the write would revert
// it.
func (h *Handler) PatchStatus(ctx context.Context, w *engine.Worker, local *unstructured.Unstructured, status map[string]any, m Marks) error {
	if status != nil && h.isAccepted(local, status) {
		if !m.Offloaded || raw.Labels(local.Object)[wire.OffloadedPodLabel] == "true" {
			return nil
		}
		status = nil
	}
	if status != nil {
		if err := engine.CheckStatusSize(status); err != nil {
			return err
		}
	}
	stored, err := h.PatchLocal(ctx, local, statusPatch(local, status, m), "status")
	if err != nil || stored == nil {
		return err
	}
	if asked, got := document.Hash(status), document.Hash(stored.Object["status"]); status != nil && got != asked {
		h.Accept(raw.Key(local), asked, got)
	}
	w.Wrote(engine.Back)
	return nil
}

// isAccepted reports whether the API server has stored this status as the present status of the pod.
func (h *Handler) isAccepted(local *unstructured.Unstructured, status map[string]any) bool {
	return h.Accepted(raw.Key(local), document.Hash(status), document.Hash(local.Object["status"]))
}

// statusPatch replaces the whole status, or leaves it unchanged if it is nil. The virtual kubelet owns all of it except
// for some conditions, which must not have changed since they were merged.
func statusPatch(local *unstructured.Unstructured, status map[string]any, m Marks) (patch jsonpatch.Patch) {
	if status != nil {
		conditions, _, _ := unstructured.NestedFieldNoCopy(local.Object, "status", "conditions")
		patch.Test("/status/conditions", conditions)
		patch.Add("/status", status)
	}
	if m.Offloaded {
		patch = engine.AddEntries(patch, "/metadata/labels", raw.Labels(local.Object), map[string]string{wire.OffloadedPodLabel: "true"})
	}
	return engine.AddEntries(patch, "/metadata/annotations", raw.Annotations(local.Object), map[string]string{RestartsAnnotation: m.Restarts, GatesAnnotation: m.Gates})
}

// deleteLocalPod deletes a pod without a grace period, because nothing of it is left.
func (h *Handler) deleteLocalPod(ctx context.Context, w *engine.Worker, local *unstructured.Unstructured) error {
	if grace := local.GetDeletionGracePeriodSeconds(); grace != nil && *grace == 0 {
		return nil // already deleted; a finalizer holds it
	}
	key, uid, none := raw.Key(local), local.GetUID(), int64(0)
	err := h.CallLocal(ctx, func(ctx context.Context) error {
		return h.Local().Resource(podsResource).Namespace(key.Namespace).
			Delete(ctx, key.Name, metav1.DeleteOptions{GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		h.Warn(local, wire.FailedDeletionReason, fmt.Sprintf("deleting the pod, %v", err))
		return fmt.Errorf("deleting pod %s, %w", key, err)
	}
	if err == nil {
		h.Counted("delete", "local")
	}
	h.states.Delete(key)
	w.Deleted(engine.Back)
	return nil
}
