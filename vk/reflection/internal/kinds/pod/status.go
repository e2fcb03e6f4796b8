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
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// showStatus reflects the status of the provider's pod to ours.
func (h *Handler) showStatus(ctx context.Context, w *evaluation.Worker, v *podView) error {
	if v.remote == nil || copies.StandsForAnother(v.remote, v.local) {
		return h.showEnd(ctx, w, v)
	}
	if why := interruption(v); why != "" {
		return h.showInterruption(ctx, w, v, why)
	}
	if wait := h.settling(v); wait > 0 {
		return &failure.RetryAfter{After: wait}
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
			v.state.delays.Written()
			return nil
		}
		// The status is already correct, and only the label is missing.
		next = nil
	}
	if !isUrgent(v, next) {
		if wait := h.Objects.Delays.Batch(&v.state.delays, h.Clock().Now()); wait > 0 {
			return &failure.RetryAfter{After: wait}
		}
	}
	if wait := h.Objects.Delays.Pace(v.key, h.Clock().Now()); wait > 0 {
		return &failure.RetryAfter{After: wait}
	}
	if err := h.PatchStatus(ctx, w, v.local, next, m); err != nil {
		return err
	}
	v.state.delays.Written()
	return nil
}

// isUrgent reports whether a status must be written at once, and not together with the statuses of other pods: a pod
// that is no longer Ready must not get traffic, and the end of a pod could not be shown after the provider's pod is
// gone. If next is nil, the present status counts.
func isUrgent(v *podView, next map[string]any) bool {
	if next == nil {
		next = v.status
	}
	return v.local.GetDeletionTimestamp() != nil || podend.Finished(pods.Phase(next)) || isReady(v.status) && !isReady(next)
}

// isReady reports whether the condition Ready of a status is True.
func isReady(status map[string]any) bool {
	return pods.Condition(status, corev1.PodReady)["status"] == string(corev1.ConditionTrue)
}

// readinessGates returns the condition types in spec.readinessGates of a pod.
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

// interruption returns the reason why the status of the provider's pod does not apply to ours, or "" if it does. The
// status does not apply while the provider's pod is being stopped, because this must not end our pod, or if the
// provider's pod is a replacement that does not run yet. While our own pod is being deleted, the end of the provider's
// pod is also the end of our pod.
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

// showInterruption keeps the last status of the pod, but marks the pod as not ready.
func (h *Handler) showInterruption(ctx context.Context, w *evaluation.Worker, v *podView, why string) error {
	next := pods.Interrupt(v.status, RecreatingReason, why, h.Clock().Now())
	if raw.Equal(next, v.status) {
		return nil
	}
	return h.PatchStatus(ctx, w, v.local, next, Marks{Offloaded: true})
}

// showAbsence shows a pod that has run as not ready if another client keeps deleting its ShadowPod.
func (h *Handler) showAbsence(ctx context.Context, w *evaluation.Worker, v *podView) error {
	switch {
	case v.shadow != nil || pods.Untouched(v.status):
		return nil
	case v.remote != nil:
		return h.showStatus(ctx, w, v)
	}
	return h.showInterruption(ctx, w, v, "another client of the provider deletes the ShadowPod, so it is not recreated at the moment: see the Events of the pod")
}

// showEnd shows the final phase from the ShadowPod when the provider's pod is gone for good. If the provider's pod is
// missing only for a moment, our pod is shown as not ready, because the provider creates its pod again.
func (h *Handler) showEnd(ctx context.Context, w *evaluation.Worker, v *podView) error {
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
		return &failure.RetryAfter{After: unseenGrace}
	}
	next := pods.Reject(v.status, corev1.PodPhase(phase), wire.RemotePodTerminatedReason, "", h.Clock().Now())
	return h.PatchStatus(ctx, w, v.local, next, Marks{Offloaded: true})
}

// unseenGrace is the time within which the watch should deliver a pod that exists on the API server.
const unseenGrace = time.Second

// isThere checks with the provider's API server whether a pod exists that the cache does not have: the watch of pods
// may be behind the watch of ShadowPods. The check is necessary because the status of a finished pod is final, and
// only the pod itself has the exit codes of its containers.
func (h *Handler) isThere(ctx context.Context, v *podView) (there bool, err error) {
	err = h.Clients.CallRemote(ctx, func(ctx context.Context) error {
		pod, err := h.Clients.Remote.Resource(podsResource).Namespace(v.scope.Remote).Get(ctx, h.Copies.RemoteName(v.key.Name), metav1.GetOptions{})
		there = err == nil && h.Copies.Managed(pod) && !copies.StandsForAnother(pod, v.local)
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting pod %s/%s, %w", v.scope.Remote, v.key.Name, err)
	}
	return there, nil
}

// incomingStatus runs the chain on the provider's pod and adapts the result to this cluster. It returns nil if a
// plugin skips the pod, so that the present status stays.
func (h *Handler) incomingStatus(ctx context.Context, w *evaluation.Worker, v *podView) (map[string]any, error) {
	in := &mutation.Input{Object: v.remote.Object, Context: h.incomingContext(v, &v.state.restarts)}
	outcome, err := h.Mutator.Mutate(ctx, w, host.Incoming, v.key.Namespace, v.local.Object, in)
	if err != nil {
		return nil, err
	}
	h.Mutator.Warnings(w, v.local, outcome)
	if outcome.Skipped {
		return nil, nil
	}
	next, err := mutation.OutputStatus(w, true)
	if err != nil {
		return nil, err
	}
	spec, _ := v.local.Object["spec"].(map[string]any)
	hostNetwork, _ := spec["hostNetwork"].(bool)
	next, omitted := h.withAllowedIPs(next, hostNetwork)
	if len(omitted) > 0 {
		h.WarnOfAddresses(w, v.local, omitted)
	}
	return content.CutStatus(pods.AdaptStatus(next, v.status, spec)), nil
}

// incomingContext returns the context of a pod's incoming chain.
func (h *Handler) incomingContext(v *podView, restarts *pods.Restarts) map[string]any {
	remoteStatus, _ := v.remote.Object["status"].(map[string]any)
	root := maps.Clone(v.scope.Context(host.Incoming))
	root["local"] = v.local.Object
	if raw.Labels(v.local.Object)[wire.RemoteUnavailableLabel] == "true" {
		root["remoteUnavailable"], root["now"] = true, h.Clock().Now().UTC().Format(time.RFC3339)
	}
	if noted, ok := raw.Annotations(v.local.Object)[RestartsAnnotation].(string); ok {
		restarts.Recall(noted)
	}
	if extra := restarts.Extra(string(v.remote.GetUID()), v.status, remoteStatus); len(extra) > 0 {
		counts := make(map[string]any, len(extra))
		for name, n := range extra {
			counts[name] = n
		}
		root["extraRestarts"] = counts
	}
	return root
}

// settling returns the delay before the status of a pod that the provider has just accepted is written. The delay
// saves a write, because most pods are running a moment later. Problems are shown at once.
func (h *Handler) settling(v *podView) time.Duration {
	status, _ := v.remote.Object["status"].(map[string]any)
	if !pods.Untouched(status) || unschedulable(status) {
		return 0
	}
	return h.Objects.Delays.Settle(&v.state.delays, v.remote.GetUID(), h.Clock().Now())
}

// unschedulable reports whether the scheduler of the provider found no node for a pod.
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

// PatchStatus writes a status, or keeps the present one if it is nil, together with the marks. A concurrent change to
// other metadata of the pod is not a conflict. A concurrent change to a condition is a conflict, because the write
// would revert it.
func (h *Handler) PatchStatus(ctx context.Context, w *evaluation.Worker, local *unstructured.Unstructured, status map[string]any, m Marks) error {
	if status != nil && h.isAccepted(local, status) {
		if !m.Offloaded || raw.Labels(local.Object)[wire.OffloadedPodLabel] == "true" {
			return nil
		}
		status = nil
	}
	if status != nil {
		if err := content.CheckStatusSize(status); err != nil {
			return err
		}
	}
	stored, err := h.Objects.PatchLocal(ctx, local, statusPatch(local, status, m), "status")
	if err != nil || stored == nil {
		return err
	}
	if asked, got := document.Hash(status), document.Hash(stored.Object["status"]); status != nil && got != asked {
		h.Objects.Accept(raw.Key(local), asked, got)
	}
	w.Wrote(evaluation.Back)
	return nil
}

// isAccepted reports whether the API server has stored this status as the present status of the pod.
func (h *Handler) isAccepted(local *unstructured.Unstructured, status map[string]any) bool {
	return h.Objects.Accepted(raw.Key(local), document.Hash(status), document.Hash(local.Object["status"]))
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
		patch = clients.AddEntries(patch, "/metadata/labels", raw.Labels(local.Object), map[string]string{wire.OffloadedPodLabel: "true"})
	}
	return clients.AddEntries(patch, "/metadata/annotations", raw.Annotations(local.Object), map[string]string{RestartsAnnotation: m.Restarts, GatesAnnotation: m.Gates})
}

// deleteLocalPod deletes a pod without a grace period, because nothing of it is left.
func (h *Handler) deleteLocalPod(ctx context.Context, w *evaluation.Worker, local *unstructured.Unstructured) error {
	if grace := local.GetDeletionGracePeriodSeconds(); grace != nil && *grace == 0 {
		// No request is needed: the pod was already deleted without a grace period, and exists only because of a
		// finalizer.
		return nil
	}
	key, uid, none := raw.Key(local), local.GetUID(), int64(0)
	err := h.Clients.CallLocal(ctx, func(ctx context.Context) error {
		return h.Clients.Local.Resource(podsResource).Namespace(key.Namespace).
			Delete(ctx, key.Name, metav1.DeleteOptions{GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		h.Events.Warn(local, wire.FailedDeletionReason, fmt.Sprintf("deleting the pod, %v", err))
		return fmt.Errorf("deleting pod %s, %w", key, err)
	}
	if err == nil {
		h.Writes.Count("delete", "local")
	}
	h.states.Delete(key)
	w.Deleted(evaluation.Back)
	return nil
}
