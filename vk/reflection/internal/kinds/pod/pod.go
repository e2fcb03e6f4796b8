// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/podend"
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Annotations of pods of this cluster, written together with the status. They ensure that restart counts never decrease
// and conditions of this cluster are never overwritten, whichever process was down when the pod was recreated.
const (
	RestartsAnnotation = wire.RestartsAnnotation
	GatesAnnotation    = wire.ReadinessGatesAnnotation
)

// RemoteGatesAnnotation, on pods of this cluster, lists the readiness gates that are opened on the provider, separated
// by commas, or "*" for all. All other gates are decided in this cluster: a provider cannot make a pod ready by opening
// them.
const RemoteGatesAnnotation = "plugins.refract.io/remote-readiness-gates"

// podState is the state of a pod between reconciliations. One worker at a time uses it.
type podState struct {
	uid        types.UID
	restarts   pods.Restarts
	held       types.UID // uid of the provider's pod whose status is not shown yet
	since      time.Time
	due        time.Time // when a changed status may be written, zero if it has not changed: see batches
	lacking    time.Time // since when the pod waits for a Secret, see TokenArrival
	admitted   bool      // see admit; generation is the pod's generation at that time
	generation int64
	awaiting   time.Time // since when the pod waits for its references, zero if it does not
	shadow     asked
	kept       kept
	hastened   int64     // last grace period given to the provider's pod, in seconds
	refused    time.Time // since when the provider refuses to run the pod again, zero if it does not: see showRefusal
}

// kept has the inputs of the last evaluation that found the ShadowPod correct. It is correct until one of them changes.
// The chain also sees the status of the pod, but a change of the status alone does not justify an evaluation.
type kept struct{ local, shadow, epoch uint64 }

func (h *Handler) kept(v *podView) kept {
	return kept{engine.ContentHash(v.local, nil), engine.ContentHash(v.shadow, h.Kind().Copy.Into), h.Epoch()}
}

// asked describes the ShadowPod whose creation was requested from the provider.
type asked struct {
	uid   types.UID // uid of the last seen ShadowPod, "" since the last create request
	since time.Time // time of the create request, unless the ShadowPod was seen since
}

// podView has all inputs of a decision about a pod.
type podView struct {
	key     engine.Key
	scope   *engine.Scope
	local   *unstructured.Unstructured
	shadow  *unstructured.Unstructured
	remote  *unstructured.Unstructured // the provider's pod
	status  map[string]any             // status of local
	state   *podState
	aborted bool // local failed because its namespace is not offloaded any more, or the provider refuses it
	current bool // the ShadowPod has the desired state of local
}

// Reconcile implements engine.Handler. It follows the life of a pod: its ShadowPod, its status, its end. (Liqo: pod
// reflection.)
func (h *Handler) Reconcile(ctx context.Context, w *engine.Worker, s *engine.Scope, key engine.Key) error {
	v := &podView{key: key, scope: s, local: s.Object(key), remote: h.Derived(s, key.Name)}
	if v.local == nil {
		h.states.Delete(key)
		h.admitted.leave(key)
		h.Forget(key)
	}
	var going bool
	if v.shadow, going = s.Copy(key.Name); going {
		return nil
	}
	if v.local == nil {
		s.Forget(key)
		return h.Remove(ctx, w, s, v.shadow)
	}
	v.status, _ = v.local.Object["status"].(map[string]any)
	v.state = h.stateOf(key, v.local.GetUID())
	if v.shadow != nil {
		v.state.shadow = asked{uid: v.shadow.GetUID()}
	}
	v.aborted = pods.Phase(v.status) == "Failed" && pods.Reason(v.status) == wire.OffloadingAbortedReason
	switch {
	case v.local.GetDeletionTimestamp() != nil:
		return h.endPod(ctx, w, v)
	case v.aborted:
		return h.Remove(ctx, w, s, v.shadow)
	case podend.Finished(pods.Phase(v.status)):
		h.admitted.leave(key)
		return nil
	case engine.StandsForAnother(v.shadow, v.local):
		return h.Remove(ctx, w, s, v.shadow)
	}
	return h.runPod(ctx, w, v)
}

func (h *Handler) stateOf(key engine.Key, uid types.UID) *podState {
	if known, ok := h.states.Load(key); ok {
		if state, _ := known.(*podState); state.uid == uid {
			return state
		}
	}
	state := &podState{uid: uid}
	h.admitted.leave(key) // removes an earlier pod of the same name
	h.states.Store(key, state)
	return state
}

// runPod reconciles the ShadowPod and shows the status. The pod's status is reflected even if a plugin failed or the
// provider refused to update the ShadowPod.
func (h *Handler) runPod(ctx context.Context, w *engine.Worker, v *podView) error {
	if rejected, err := h.admit(ctx, w, v); rejected || err != nil {
		return err
	}
	goesOn, failed := h.keepShadow(ctx, w, v)
	if !goesOn {
		if class, _ := engine.Classify(failed); failed != nil && class == engine.Quarantine {
			return engine.Directed(failed, h.showAbsence(ctx, w, v))
		}
		return h.showRefusal(ctx, w, v, failed)
	}
	v.state.refused = time.Time{}
	shown := h.showStatus(ctx, w, v)
	if failed == nil && shown == nil && !w.Warned {
		h.OK(v.local.GetUID())
	}
	return engine.Directed(failed, shown)
}

// keepShadow reconciles the ShadowPod. goesOn reports whether there is a ShadowPod whose status should be shown.
func (h *Handler) keepShadow(ctx context.Context, w *engine.Worker, v *podView) (goesOn bool, err error) {
	var now kept
	if v.shadow != nil {
		if now = h.kept(v); now == v.state.kept {
			v.current = true
			return true, nil
		}
	}
	h.CheckAnnotations(w, v.local)
	root, lacking := h.context(v)
	outcome, err := h.Mutate(ctx, w, host.Outgoing, v.key.Namespace, v.local.Object, root)
	if err != nil {
		return v.shadow != nil, h.blame(v, err, lacking)
	}
	h.Warnings(w, v.local, outcome)
	if outcome.Skipped {
		h.tellTokens(v, nil)
		return false, h.skipPod(ctx, w, v, fmt.Sprintf("plugin %s: %s", outcome.Skipper, outcome.SkipReason))
	}
	if refused, err := h.refuseObstacles(ctx, w, v); refused || err != nil {
		return false, err
	}
	if err := h.mayStart(w, v); err != nil {
		return v.shadow != nil, err
	}
	debuggers := 0
	if v.shadow == nil {
		// No API server accepts a new pod with ephemeral containers. They are added by a later update.
		if debuggers, err = w.Doc.Root().Remove("spec.ephemeralContainers"); err != nil {
			return false, err
		}
	}
	x, err := h.Desired(w, v.scope, v.local)
	if err != nil {
		return v.shadow != nil, err
	}
	x.Extra = map[string]string{engine.OriginUIDAnnotation: string(v.local.GetUID()), wire.OriginNamespaceAnnotation: v.key.Namespace}
	if v.shadow == nil {
		h.tellTokens(v, x.View.Field("spec").Field("volumes").Value())
		err := h.Create(ctx, w, x)
		if engine.MayHaveArrived(err) {
			v.state.shadow = asked{since: h.Clock().Now()}
		}
		if err != nil || debuggers == 0 {
			return false, err
		}
		return false, &engine.RetryAfter{After: engine.Soon}
	}
	if err := h.updateShadow(ctx, w, v, x); err != nil || w.Result != engine.Unchanged {
		return true, err
	}
	v.current = true
	if !w.Warned {
		v.state.kept = now
	}
	return true, nil
}

// updateShadow updates the metadata and the fields of the spec that may change while a pod lives. All other fields were
// fixed when the pod was created; a plugin that would set them differently today affects only new pods. While the node
// is not ready, nothing is written, because the labels for this state are temporary.
func (h *Handler) updateShadow(ctx context.Context, w *engine.Worker, v *podView, x *engine.Desired) error {
	if raw.Labels(v.local.Object)[wire.RemoteUnavailableLabel] == "true" || v.shadow.GetDeletionTimestamp() != nil {
		return nil
	}
	have, _ := raw.Nested(v.shadow.Object, h.Kind().Copy.Into...).(map[string]any)
	spec := x.View.Field("spec")
	stands := spec // spec with the decisions of the provider's admission
	if object := x.WithAdmitted(w, v.shadow); object != nil {
		stands = document.Of(raw.Nested(object.Object, h.Kind().Copy.Into...))
	}
	if x.SameMetadata(v.shadow) && !pods.SpecChanged(stands, have) {
		return nil
	}
	whole, err := h.WholeCopy(ctx, v.scope, v.shadow)
	if err != nil {
		return err
	}
	have, _ = raw.Nested(whole.Object, h.Kind().Copy.Into...).(map[string]any)
	shadow := func(spec map[string]any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: maps.Clone(whole.Object)}
		object.Object["metadata"] = x.Metadata(w, whole)
		object.Object["spec"] = map[string]any{"pod": spec}
		return object
	}
	// A provider with Liqo's webhook takes neither sizes nor debuggers: they must not keep the rest back.
	x.Lesser = func() []*unstructured.Unstructured {
		plain := pods.UpdatePlain(spec, have)
		if x.SameMetadata(whole) && raw.Equal(plain, have) {
			return nil
		}
		return []*unstructured.Unstructured{shadow(plain)}
	}
	return h.Update(ctx, w, x, v.shadow, shadow(pods.UpdateSpec(spec, have)))
}

// endPod releases a pod that is being deleted when nothing of it is left on the provider.
func (h *Handler) endPod(ctx context.Context, w *engine.Worker, v *podView) error {
	if v.shadow == nil && v.remote == nil {
		if err := h.shadowIsGone(ctx, v); err != nil {
			return err
		}
		return h.letGo(ctx, w, v)
	}
	if v.shadow != nil && v.shadow.GetDeletionTimestamp() == nil {
		if err := h.Remove(ctx, w, v.scope, v.shadow); err != nil {
			return err
		}
	}
	if err := h.hasten(ctx, v); err != nil {
		return err
	}
	if v.aborted || podend.Finished(pods.Phase(v.status)) {
		return nil
	}
	return h.showStatus(ctx, w, v)
}

// hasten limits the grace period of the provider's pod to the remaining one of ours, which `kubectl delete
// --grace-period`, a drain or an eviction has shortened. Without it, the provider uses the grace period in the pod's
// spec when its ShadowPod is deleted. A longer grace period is impossible, because Kubernetes uses the shorter of two.
func (h *Handler) hasten(ctx context.Context, v *podView) error {
	going := v.local.GetDeletionGracePeriodSeconds()
	if v.remote == nil || going == nil {
		return nil
	}
	// With a grace period of 0, the provider would remove the pod while its containers still run.
	most := max(1, *going)
	if v.state.hastened == most {
		return nil
	}
	left := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if own, ok, _ := unstructured.NestedInt64(v.local.Object, "spec", "terminationGracePeriodSeconds"); ok {
		left = own
	}
	if theirs := v.remote.GetDeletionGracePeriodSeconds(); theirs != nil {
		left = min(left, *theirs)
	}
	if most >= left {
		return nil
	}
	uid := v.remote.GetUID()
	err := h.CallRemote(ctx, func(ctx context.Context) error {
		return h.Remote().Resource(podsResource).Namespace(v.scope.RemoteNamespace()).
			Delete(ctx, v.remote.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &most, Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	switch {
	case err == nil:
		h.Counted("delete", "remote")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone
	case apierrors.IsForbidden(err): // expected at providers with Liqo: the pod ends after its own grace period
	default:
		return fmt.Errorf("shortening the grace period of pod %s/%s, %w", v.scope.RemoteNamespace(), v.remote.GetName(), err)
	}
	v.state.hastened = most
	return nil
}

// straggling is how long a request may still arrive after the wait for its response was abandoned. It may be in the
// buffer of a proxy, or on its way through a connection that this side has already lost.
const straggling = 2 * time.Second

// shadowIsGone returns an error as long as the pod may have a ShadowPod that the cache does not show. A cache shows the
// past, and a create without a response may have succeeded. Only a deletion delivered by the watch, or the API server
// itself, proves that there is no ShadowPod. Releasing the pod earlier could run it twice under the same name, once of
// them here.
func (h *Handler) shadowIsGone(ctx context.Context, v *podView) error {
	known := v.state.shadow
	switch {
	case known == asked{} || v.scope.IsGone(known.uid):
		return nil // this process never created it, or its deletion was delivered
	case h.Clock().Since(known.since) < straggling:
		return &engine.RetryAfter{After: straggling - h.Clock().Since(known.since)}
	}
	var foreign *engine.ForeignError
	if err := h.MustBeFree(ctx, v.scope, v.key); err != nil && !errors.As(err, &foreign) {
		return err
	}
	v.state.shadow = asked{}
	return nil
}

// letGo ends a pod that has left nothing on the provider. A controller that holds the pod by a finalizer (a Job counts
// its pods this way) may wait for its final phase, and a kubelet sets a final phase before it releases a pod.
func (h *Handler) letGo(ctx context.Context, w *engine.Worker, v *podView) error {
	if len(v.local.GetFinalizers()) > 0 && !podend.Finished(pods.Phase(v.status)) {
		over := pods.Reject(v.status, corev1.PodFailed, wire.RemotePodTerminatedReason, "", h.Clock().Now())
		if err := h.PatchStatus(ctx, w, v.local, over, Marks{}); err != nil {
			return err
		}
	}
	return h.deleteLocalPod(ctx, w, v.local)
}
