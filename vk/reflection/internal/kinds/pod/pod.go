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

// Annotations of pods of this cluster, written together with the status, so that restart counts never fall and conditions of this cluster
// are never overwritten, whichever process was down when the pod was recreated.
const (
	RestartsAnnotation = wire.RestartsAnnotation
	GatesAnnotation    = wire.ReadinessGatesAnnotation
)

// RemoteGatesAnnotation, on pods of this cluster, names the readiness gates that something on the provider opens, separated by
// commas, or "*" for all. Whether any other gate is open is for this cluster to say: a provider makes no pod ready by it.
const RemoteGatesAnnotation = "plugins.refract.io/remote-readiness-gates"

// podState is what is remembered about a pod. One worker at a time has it.
type podState struct {
	uid        types.UID
	restarts   pods.Restarts
	held       types.UID // the provider's pod whose status is not shown yet
	since      time.Time
	due        time.Time // when a changed status may be written, zero without a change: see batches
	lacking    time.Time // since when a Secret is awaited, see TokenArrival
	admitted   bool      // see admit; generation is that of the pod at the time
	generation int64
	awaiting   time.Time // since when its references are awaited, zero if they are not
	shadow     asked
	kept       kept
	hastened   int64     // the grace period that the provider's pod was given last, in seconds
	refused    time.Time // since when the provider refuses to run the pod again, zero if it does not: see showRefusal
}

// kept is what a ShadowPod was right for when its pod's chain has run last: until something of that changes, it is. The chain
// sees the status of the pod, too, but what it says of that is not worth an evaluation.
type kept struct{ local, shadow, epoch uint64 }

func (h *Handler) kept(v *podView) kept {
	return kept{engine.ContentHash(v.local, nil), engine.ContentHash(v.shadow, h.Kind().Copy.Into), h.Epoch()}
}

// asked is what is known of the ShadowPod that the provider was asked for.
type asked struct {
	uid   types.UID // of the one that was seen last, "" since it was asked for (again)
	since time.Time // when it was asked for, unless it was seen since
}

// podView is everything a decision about a pod is made of.
type podView struct {
	key     engine.Key
	scope   *engine.Scope
	local   *unstructured.Unstructured
	shadow  *unstructured.Unstructured
	remote  *unstructured.Unstructured // the provider's pod
	status  map[string]any             // of local
	state   *podState
	aborted bool // local was failed because its namespace was taken back, or the provider does not run it again
	current bool // the ShadowPod has what local asks for
}

// Reconcile implements engine.Handler: it follows the life of a pod: its ShadowPod, its status, its end. (Liqo: pod reflection.)
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
	h.admitted.leave(key) // an earlier pod of the name
	h.states.Store(key, state)
	return state
}

// runPod keeps the ShadowPod and shows the status. That a plugin fails, or the provider refuses a change, concerns the
// ShadowPod: how its pod is doing is shown all the same.
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

// keepShadow makes the ShadowPod what it should be, and reports whether there is one whose status goes on being shown.
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
		// No API server makes a pod that has them: they come next.
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

// updateShadow brings metadata up to date, and of the spec what may change while a pod lives; everything else was
// settled when the pod was created, and a plugin that would settle it differently today concerns new pods. While the
// node is not ready the labels that say so are in flux, and nothing is written.
func (h *Handler) updateShadow(ctx context.Context, w *engine.Worker, v *podView, x *engine.Desired) error {
	if raw.Labels(v.local.Object)[wire.RemoteUnavailableLabel] == "true" || v.shadow.GetDeletionTimestamp() != nil {
		return nil
	}
	have, _ := raw.Nested(v.shadow.Object, h.Kind().Copy.Into...).(map[string]any)
	spec := x.View.Field("spec")
	stands := spec // with the decisions of the provider's admission
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

// endPod lets a pod that is being deleted go when nothing of it is left on the provider.
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

// hasten gives the provider's pod no more time to end than ours has, which `kubectl delete --grace-period`, a drain or an
// eviction has shortened. When its ShadowPod goes, the provider gives it what its spec says. Longer than that is not to be
// had: of two grace periods Kubernetes takes the shorter one.
func (h *Handler) hasten(ctx context.Context, v *podView) error {
	going := v.local.GetDeletionGracePeriodSeconds()
	if v.remote == nil || going == nil {
		return nil
	}
	most := max(1, *going) // with 0 it would be forgotten there while its containers still run
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
	case apierrors.IsForbidden(err): // as it is at Liqo's providers: it ends, in its own time
	default:
		return fmt.Errorf("shortening the grace period of pod %s/%s, %w", v.scope.RemoteNamespace(), v.remote.GetName(), err)
	}
	v.state.hastened = most
	return nil
}

// straggling is how long a request may still arrive after its answer was given up: it may lie in the buffer of a proxy, or
// be on its way through a connection that is lost for us.
const straggling = 2 * time.Second

// shadowIsGone is an error as long as the pod may have a ShadowPod that the cache does not show. A cache says what was, and a
// create that has no answer is an open question: only the deletion that the watch has delivered, or the API server itself,
// says that there is none. Releasing the pod earlier would run it twice, once here under the same name.
func (h *Handler) shadowIsGone(ctx context.Context, v *podView) error {
	known := v.state.shadow
	switch {
	case known == asked{} || v.scope.IsGone(known.uid):
		return nil // never asked for by this process, and listed since it began; or seen to go
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

// letGo ends a pod of which nothing is left on the provider. A controller that holds it by a finalizer (a Job counts its pods that way)
// may wait for it to be over, and a kubelet sees to that before it lets a pod go.
func (h *Handler) letGo(ctx context.Context, w *engine.Worker, v *podView) error {
	if len(v.local.GetFinalizers()) > 0 && !podend.Finished(pods.Phase(v.status)) {
		over := pods.Reject(v.status, corev1.PodFailed, wire.RemotePodTerminatedReason, "", h.Clock().Now())
		if err := h.PatchStatus(ctx, w, v.local, over, Marks{}); err != nil {
			return err
		}
	}
	return h.deleteLocalPod(ctx, w, v.local)
}
