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
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/internal/readonly"
	"github.com/refract-project/refract/vk/reflection/internal/statusdelay"
)

// Annotations of pods of this cluster, written together with the status. They ensure that restart counts never
// decrease and that conditions of this cluster are never overwritten, even if one of the processes did not run when
// the pod was recreated.
const (
	RestartsAnnotation = wire.RestartsAnnotation
	GatesAnnotation    = wire.ReadinessGatesAnnotation
)

// RemoteGatesAnnotation, on pods of this cluster, lists the readiness gates that are opened on the provider, separated
// by commas, or "*" for all. All other gates are decided in this cluster: a provider cannot make a pod ready by opening
// them.
const RemoteGatesAnnotation = "plugins.refract.io/remote-readiness-gates"

// podState is the state of a pod between reconciliations. Only one worker at a time may use it.
type podState struct {
	uid        types.UID
	restarts   pods.Restarts
	delays     statusdelay.Status
	lacking    time.Time // time since which the pod has waited for a Secret, see TokenArrivalGrace
	admitted   bool      // set when the pod was admitted (see admit); generation is the pod's generation at that time
	generation int64
	awaiting   time.Time // time since which the pod has waited for its references, zero if it does not wait
	shadow     asked
	kept       kept
	hastened   int64 // last grace period given to the provider's pod, in seconds
	// refused is the time since which the provider has refused to run the pod again, zero if it does not refuse. See
	// showRefusal.
	refused time.Time
}

// kept contains the inputs of the last evaluation that found the ShadowPod correct. The ShadowPod stays correct until
// one of the inputs changes. Plugins also see the status of the pod, which is not included, because a change in the
// status alone does not justify another run of the chain.
type kept struct{ local, shadow, epoch uint64 }

func (h *Handler) kept(v *podView) kept {
	return kept{content.Hash(v.local, nil), content.Hash(v.shadow, h.Kind().Copy.Into), h.Epoch()}
}

// asked describes the ShadowPod whose creation was requested from the provider.
type asked struct {
	uid   types.UID // uid of the last seen ShadowPod, "" since the last create request
	since time.Time // time of the create request, zero after the ShadowPod was seen
}

// podView contains the objects that the reconciliation of a pod depends on.
type podView struct {
	key    queue.Key
	scope  *engine.Scope
	local  *unstructured.Unstructured
	shadow *unstructured.Unstructured
	remote *unstructured.Unstructured // the provider's pod
	status map[string]any             // status of local
	state  *podState
	// aborted means that local has failed because its namespace is no longer offloaded, or because the provider
	// refuses it.
	aborted bool
	current bool // the ShadowPod is up to date with local
}

// Reconcile implements engine.Handler. It maintains the ShadowPod of a pod, reflects the status back, and releases
// the pod when it ends. This corresponds to Liqo's pod reflection.
func (h *Handler) Reconcile(ctx context.Context, w *evaluation.Worker, s *engine.Scope, key queue.Key) error {
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
		return h.Copies.Remove(ctx, w, s.Namespace, v.shadow)
	}
	v.status, _ = v.local.Object["status"].(map[string]any)
	v.state = h.stateOf(key, v.local.GetUID())
	if v.shadow != nil {
		v.state.shadow = asked{uid: v.shadow.GetUID()}
	}
	v.aborted = pods.Phase(v.status) == "Failed" && pods.Reason(v.status) == wire.OffloadingAbortedReason
	if v.local.GetDeletionTimestamp() != nil || podend.Finished(pods.Phase(v.status)) {
		h.Mutator.Release(key.Namespace, key.Name)
	}
	switch {
	case v.local.GetDeletionTimestamp() != nil:
		return h.endPod(ctx, w, v)
	case v.aborted:
		return h.Copies.Remove(ctx, w, s.Namespace, v.shadow)
	case podend.Finished(pods.Phase(v.status)):
		h.admitted.leave(key)
		return nil
	case copies.StandsForAnother(v.shadow, v.local):
		return h.Copies.Remove(ctx, w, s.Namespace, v.shadow)
	}
	return h.runPod(ctx, w, v)
}

// stateOf returns the state of a pod. A new pod of the same name begins with an empty state.
func (h *Handler) stateOf(key queue.Key, uid types.UID) *podState {
	if known, ok := h.states.Load(key); ok {
		if state, _ := known.(*podState); state.uid == uid {
			return state
		}
	}
	state := &podState{uid: uid}
	// The state belongs to an earlier pod of the same name, which no longer uses resources of the node.
	h.admitted.leave(key)
	h.states.Store(key, state)
	return state
}

// runPod reconciles the ShadowPod and shows the status. The pod's status is reflected even if a plugin failed or the
// provider refused to update the ShadowPod.
func (h *Handler) runPod(ctx context.Context, w *evaluation.Worker, v *podView) error {
	if rejected, err := h.admit(ctx, w, v); rejected || err != nil {
		return err
	}
	goesOn, failed := h.keepShadow(ctx, w, v)
	if !goesOn {
		if class, _ := failure.Classify(failed); failed != nil && class == failure.Quarantine {
			return evaluation.Directed(failed, h.showAbsence(ctx, w, v))
		}
		return h.showRefusal(ctx, w, v, failed)
	}
	v.state.refused = time.Time{}
	h.noteAccess(ctx)
	shown := h.showStatus(ctx, w, v)
	if failed == nil && shown == nil && !w.Warned {
		h.Events.OK(v.local.GetUID())
	}
	return evaluation.Directed(failed, shown)
}

// keepShadow reconciles the ShadowPod. goesOn reports whether there is a ShadowPod whose status should be shown.
func (h *Handler) keepShadow(ctx context.Context, w *evaluation.Worker, v *podView) (goesOn bool, err error) {
	var now kept
	if v.shadow != nil {
		if now = h.kept(v); now == v.state.kept {
			v.current = true
			return true, nil
		}
	}
	h.Mutator.CheckAnnotations(w, v.local)
	root, lacking := h.context(v)
	in := &mutation.Input{Object: v.local.Object, Context: root}
	outcome, err := h.Mutator.Mutate(ctx, w, host.Outgoing, v.key.Namespace, v.local.Object, in)
	if err != nil {
		return v.shadow != nil, h.blame(v, err, lacking)
	}
	h.Mutator.Warnings(w, v.local, outcome)
	if outcome.Skipped {
		// A pod without a ShadowPod that has not started only waits: nothing must be ended, so no probation can hold
		// it.
		if v.shadow != nil || !pods.Untouched(v.status) {
			if err := h.MayRemove(ctx, w, host.Outgoing, v.scope, v.local, in); err != nil {
				return v.shadow != nil, err
			}
		}
		h.tellTokens(v, nil)
		return h.skipPod(ctx, w, v, fmt.Sprintf("plugin %s: %s", outcome.Skipper, outcome.SkipReason))
	}
	if refused, err := h.refuseObstacles(ctx, w, v); refused || err != nil {
		return false, err
	}
	if err := h.mayStart(ctx, w, v); err != nil {
		return v.shadow != nil, err
	}
	debuggers := 0
	if v.shadow == nil {
		// The ephemeral containers are removed, because no API server accepts a new pod with ephemeral containers. A
		// later update adds them.
		if debuggers, err = w.Doc.Root().Remove("spec.ephemeralContainers"); err != nil {
			return false, err
		}
	}
	x, err := h.Copies.Desired(w, v.scope.Namespace, v.local)
	if err != nil {
		return v.shadow != nil, err
	}
	x.Extra = map[string]string{copies.OriginUIDAnnotation: string(v.local.GetUID()), wire.OriginNamespaceAnnotation: v.key.Namespace}
	if v.shadow == nil {
		h.tellTokens(v, x.View.Field("spec").Field("volumes").Value())
		err := h.Copies.Create(ctx, w, x)
		if failure.MayHaveArrived(err) {
			v.state.shadow = asked{since: h.Clock().Now()}
		}
		if err == nil {
			h.reviews.forget(v.scope.Remote)
		}
		if err != nil || debuggers == 0 {
			return false, err
		}
		return false, &failure.RetryAfter{After: copies.Soon}
	}
	if err := h.updateShadow(ctx, w, v, x); err != nil || w.Result != evaluation.Unchanged {
		return true, err
	}
	v.current = true
	if !w.Warned {
		v.state.kept = now
	}
	return true, nil
}

// updateShadow updates the metadata and the fields of the spec that may change while a pod lives. All other fields
// keep the values from the creation of the pod: a plugin that would set them differently today affects only new pods.
// While the node is not ready, nothing is written, because the labels for this state are temporary.
func (h *Handler) updateShadow(ctx context.Context, w *evaluation.Worker, v *podView, x *copies.Desired) error {
	if raw.Labels(v.local.Object)[wire.RemoteUnavailableLabel] == "true" || v.shadow.GetDeletionTimestamp() != nil {
		return nil
	}
	have, _ := raw.Nested(v.shadow.Object, h.Kind().Copy.Into...).(map[string]any)
	spec := x.View.Field("spec")
	// The stored spec is compared with the spec that includes the decisions of the provider's admission.
	stands := spec
	if object := x.WithAdmitted(w, v.shadow); object != nil {
		stands = document.Of(raw.Nested(object.Object, h.Kind().Copy.Into...))
	}
	if x.SameMetadata(v.shadow) && !pods.SpecChanged(stands, have) {
		return nil
	}
	whole, err := h.Copies.WholeCopy(ctx, v.scope.Namespace, v.shadow)
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
	// A provider with Liqo's webhook accepts neither resizes nor ephemeral containers. They must not prevent the
	// other changes.
	x.Lesser = func() []*unstructured.Unstructured {
		plain := pods.UpdatePlain(spec, have)
		if x.SameMetadata(whole) && raw.Equal(plain, have) {
			return nil
		}
		return []*unstructured.Unstructured{shadow(plain)}
	}
	return h.Copies.Update(ctx, w, x, v.shadow, shadow(pods.UpdateSpec(spec, have)))
}

// endPod releases a pod that is being deleted as soon as neither its ShadowPod nor its pod exists on the provider.
// Until then the status is shown, even if the provider refuses the deletion, because the provider's pod still runs or
// ends by itself.
func (h *Handler) endPod(ctx context.Context, w *evaluation.Worker, v *podView) error {
	if v.shadow == nil && v.remote == nil {
		if err := h.shadowIsGone(ctx, v); err != nil {
			return err
		}
		return h.letGo(ctx, w, v)
	}
	removed := h.Copies.Remove(ctx, w, v.scope.Namespace, v.shadow)
	if removed == nil {
		// As long as the ShadowPod is not deleted, the provider would create its pod again.
		removed = h.hasten(ctx, v)
	}
	if v.aborted || podend.Finished(pods.Phase(v.status)) {
		return removed
	}
	return evaluation.Directed(removed, h.showStatus(ctx, w, v))
}

// hasten limits the grace period of the provider's pod to the remaining grace period of our pod, which `kubectl
// delete --grace-period`, a drain or an eviction has shortened. Without hasten, the provider would use the grace
// period in the pod's spec when its ShadowPod is deleted. The grace period cannot be extended, because Kubernetes
// uses the shortest one that was requested.
func (h *Handler) hasten(ctx context.Context, v *podView) error {
	going := v.local.GetDeletionGracePeriodSeconds()
	if v.remote == nil || going == nil {
		return nil
	}
	// The grace period is at least 1, because with 0 the provider would remove the pod while its containers still
	// run.
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
	err := h.Clients.CallRemote(ctx, func(ctx context.Context) error {
		return h.Clients.Remote.Resource(podsResource).Namespace(v.scope.Remote).
			Delete(ctx, v.remote.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &most, Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	switch {
	case readonly.Refused(err):
		return err
	case err == nil:
		h.Writes.Count("delete", "remote")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// The pod is gone, or another pod has its name.
	case apierrors.IsForbidden(err):
		// Providers with Liqo do not permit this. The pod then ends after its own grace period.
	default:
		return fmt.Errorf("shortening the grace period of pod %s/%s, %w", v.scope.Remote, v.remote.GetName(), err)
	}
	v.state.hastened = most
	return nil
}

// stragglerGrace is the time within which a request may still arrive after the wait for its response was abandoned.
// It may be in the buffer of a proxy, or on its way through a connection that this side has already lost.
const stragglerGrace = 2 * time.Second

// shadowIsGone returns an error as long as the pod may have a ShadowPod that the cache does not show. The cache alone
// is not sufficient, because it may be outdated, and a create request without a response may have succeeded. Only a
// deletion delivered by the watch, or the API server itself, proves that there is no ShadowPod. If the pod were
// released earlier, another pod of the same name could run in this cluster at the same time.
func (h *Handler) shadowIsGone(ctx context.Context, v *podView) error {
	known := v.state.shadow
	switch {
	case known == asked{} || v.scope.IsGone(known.uid):
		// This process never created the ShadowPod, or the watch has delivered its deletion.
		return nil
	case h.Clock().Since(known.since) < stragglerGrace:
		return &failure.RetryAfter{After: stragglerGrace - h.Clock().Since(known.since)}
	}
	var foreign *failure.ForeignError
	if err := h.Copies.MustBeFree(ctx, v.scope.Namespace, v.key); err != nil && !errors.As(err, &foreign) {
		return err
	}
	v.state.shadow = asked{}
	return nil
}

// letGo deletes a pod that has neither a ShadowPod nor a pod on the provider. Before the deletion, it sets a final
// phase, as a kubelet does, because a controller that holds the pod with a finalizer (a Job counts its pods this way)
// may wait for a final phase.
func (h *Handler) letGo(ctx context.Context, w *evaluation.Worker, v *podView) error {
	if len(v.local.GetFinalizers()) > 0 && !podend.Finished(pods.Phase(v.status)) {
		over := pods.Reject(v.status, corev1.PodFailed, wire.RemotePodTerminatedReason, "", h.Clock().Now())
		if err := h.PatchStatus(ctx, w, v.local, over, Marks{}); err != nil {
			return err
		}
	}
	return h.deleteLocalPod(ctx, w, v.local)
}
