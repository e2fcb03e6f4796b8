// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

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
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// OriginUIDAnnotation, on ShadowPods and their pods, is the uid of the pod they stand for: a pod of the same name that
// came later (a StatefulSet's, say) is another one, and must not be shown the end of the first. On copies that are applied
// it reports whether an object was made anew, possibly with another value in a field that never changes.
const OriginUIDAnnotation = "plugins.refract.io/origin-uid"

// RestartsAnnotation, on pods of this cluster, says as JSON which pod of the provider was counted last, and what was counted
// for earlier ones: so restart counts never fall, whoever was down when the pod was re-created. It is written together with
// the status and never crosses.
const RestartsAnnotation = "plugins.refract.io/restarts"

// GatesAnnotation, on pods of this cluster, says as JSON which conditions of readiness gates, and others that no kubelet
// writes, were taken over from the provider, each with a hash of what it said: all others are somebody's here. It is written
// and kept here likewise.
const GatesAnnotation = "plugins.refract.io/readiness-gates"

// RemoteGatesAnnotation, on pods of this cluster, names the readiness gates that something at the provider opens, separated by
// commas, or "*" for all. Whether any other gate is open is for this cluster to say: a provider makes no pod ready by it.
const RemoteGatesAnnotation = "plugins.refract.io/remote-readiness-gates"

// podState is what is remembered about a pod. One worker at a time has it.
type podState struct {
	uid      types.UID
	restarts pods.Restarts
	held     types.UID // the provider's pod whose status is not shown yet
	since    time.Time
	lacking  time.Time // since when a Secret is awaited, see tokenArrival
	shadow   asked
	hastened int64 // the grace period that the provider's pod was given last, in seconds
}

// asked is what is known of the ShadowPod that the provider was asked for.
type asked struct {
	uid   types.UID // of the one that was seen last, "" since it was asked for (again)
	since time.Time // when it was asked for, unless it was seen since
}

// podView is everything a decision about a pod is made of.
type podView struct {
	key       Key
	extension *extension
	copies    *copies
	local     *unstructured.Unstructured
	shadow    *unstructured.Unstructured
	remote    *unstructured.Unstructured // the provider's pod
	status    map[string]any             // of local
	state     *podState
	aborted   bool // local was failed because its namespace was taken back
}

// reconcilePod follows the life of a pod: its ShadowPod, its status, its end. (Liqo: pod reflection.)
func (r *reflector) reconcilePod(ctx context.Context, w *worker, key Key) error {
	local, _ := r.localWrites.View(key, informer.Get(r.pods, key.Namespace, key.Name))
	if local == nil {
		r.states.Delete(key)
		r.statuses.Forget(key)
		r.paces.forget(key)
	}
	t := r.m.extension(key.Namespace)
	if t == nil {
		return r.podNotOffloaded(ctx, w, key, local)
	}
	c := t.of(PodKind)
	if c == nil || !c.ready.Load() {
		return nil
	}
	v := &podView{key: key, extension: t, copies: c, local: local, remote: informer.Get(c.pods, t.remote, key.Name)}
	var going bool
	if v.shadow, going = r.remoteObject(c, t, key.Name); going {
		return nil
	}
	if v.local == nil {
		c.memory.Forget(key)
		return r.remove(ctx, w, t, c, v.shadow)
	}
	v.status, _ = v.local.Object["status"].(map[string]any)
	v.state = r.stateOf(key, v.local.GetUID())
	if v.shadow != nil {
		v.state.shadow = asked{uid: v.shadow.GetUID()}
	}
	v.aborted = pods.Phase(v.status) == "Failed" && pods.Reason(v.status) == wire.OffloadingAbortedReason
	switch {
	case v.local.GetDeletionTimestamp() != nil:
		return r.endPod(ctx, w, v)
	case v.aborted:
		return r.remove(ctx, w, t, c, v.shadow)
	case pods.Finished(pods.Phase(v.status)):
		return nil
	case standsForAnother(v.shadow, v.local):
		return r.remove(ctx, w, t, c, v.shadow)
	}
	return r.runPod(ctx, w, v)
}

func (r *reflector) stateOf(key Key, uid types.UID) *podState {
	if known, ok := r.states.Load(key); ok {
		if state, _ := known.(*podState); state.uid == uid {
			return state
		}
	}
	state := &podState{uid: uid}
	r.states.Store(key, state)
	return state
}

// standsForAnother tells a copy that was made for an earlier object of the same name.
func standsForAnother(object, local *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	origin, marked := raw.Annotations(object.Object)[OriginUIDAnnotation].(string)
	return marked && origin != string(local.GetUID())
}

// runPod keeps the ShadowPod and shows the status. That a plugin fails, or the provider refuses a change, concerns the
// ShadowPod: how its pod is doing is shown all the same.
func (r *reflector) runPod(ctx context.Context, w *worker, v *podView) error {
	r.misspelt(w, v.local)
	goesOn, kept := r.keepShadow(ctx, w, v)
	if !goesOn {
		return kept
	}
	shown := r.showStatus(ctx, w, v)
	var later *retryLater
	switch {
	case kept == nil:
		if shown == nil && !w.warned {
			r.m.events.OK(r.kind.Name, v.local.GetUID())
		}
		return shown
	case errors.As(shown, &later):
		r.queue.AddAfter(v.key, later.after)
	case shown != nil:
		r.failed(v.key, shown)
	}
	return kept
}

// keepShadow makes the ShadowPod what it should be, and reports whether there is one whose status goes on being shown.
func (r *reflector) keepShadow(ctx context.Context, w *worker, v *podView) (goesOn bool, err error) {
	root, lacking := r.podContext(v)
	outcome, err := r.mutate(ctx, w, host.Outgoing, v.key.Namespace, v.local.Object, root)
	if err != nil {
		return v.shadow != nil, r.blame(v, err, lacking)
	}
	r.warnings(w, v.local, outcome)
	if outcome.Skipped {
		r.tellTokens(v, nil)
		return false, r.skipPod(ctx, w, v, fmt.Sprintf("plugin %s: %s", outcome.Skipper, outcome.SkipReason))
	}
	debuggers := 0
	if v.shadow == nil {
		// No API server makes a pod that has them: they come next.
		if debuggers, err = w.doc.Root().Remove("spec.ephemeralContainers"); err != nil {
			return false, err
		}
	}
	x, err := r.want(w, v.extension, v.copies, v.local)
	if err != nil {
		return v.shadow != nil, err
	}
	x.extra = map[string]string{OriginUIDAnnotation: string(v.local.GetUID())}
	if v.shadow == nil {
		r.tellTokens(v, x.view.Field("spec").Field("volumes").Value())
		err := r.create(ctx, w, v.extension, x)
		if mayHaveArrived(err) {
			v.state.shadow = asked{since: r.m.options.Clock.Now()}
		}
		if err != nil || debuggers == 0 {
			return false, err
		}
		return false, &retryLater{soon}
	}
	return true, r.updateShadow(ctx, w, v, x)
}

// updateShadow brings metadata up to date, and of the spec what may change while a pod lives; everything else was
// settled when the pod was created, and a plugin that would settle it differently today concerns new pods. While the
// node is not ready the labels that say so are in flux, and nothing is written.
func (r *reflector) updateShadow(ctx context.Context, w *worker, v *podView, x *wanted) error {
	if raw.Labels(v.local.Object)[wire.RemoteUnavailableLabel] == "true" || v.shadow.GetDeletionTimestamp() != nil {
		return nil
	}
	have, _ := raw.Nested(v.shadow.Object, r.kind.Into...).(map[string]any)
	spec := x.view.Field("spec")
	if x.sameMetadata(v.shadow) && !pods.SpecChanged(spec, have) {
		return nil
	}
	shadow := func(spec map[string]any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: maps.Clone(v.shadow.Object)}
		object.Object["metadata"] = x.metadata(w, v.shadow)
		object.Object["spec"] = map[string]any{"pod": spec}
		return object
	}
	// A provider with Liqo's webhook takes neither sizes nor debuggers: they must not keep the rest back.
	x.lesser = func() *unstructured.Unstructured {
		plain := pods.UpdatePlain(spec, have)
		if x.sameMetadata(v.shadow) && raw.Equal(plain, have) {
			return nil
		}
		return shadow(plain)
	}
	return r.update(ctx, w, v.extension, x, v.shadow, shadow(pods.UpdateSpec(spec, have)))
}

// endPod lets a pod that is being deleted go when nothing of it is left on the provider.
func (r *reflector) endPod(ctx context.Context, w *worker, v *podView) error {
	if v.shadow == nil && v.remote == nil {
		if err := r.shadowIsGone(ctx, v); err != nil {
			return err
		}
		return r.letGo(ctx, w, v)
	}
	if v.shadow != nil && v.shadow.GetDeletionTimestamp() == nil {
		if err := r.remove(ctx, w, v.extension, v.copies, v.shadow); err != nil {
			return err
		}
	}
	if err := r.hasten(ctx, v); err != nil {
		return err
	}
	if v.aborted || pods.Finished(pods.Phase(v.status)) {
		return nil
	}
	return r.showStatus(ctx, w, v)
}

// hasten gives the provider's pod no more time to end than ours has, which `kubectl delete --grace-period`, a drain or an
// eviction has shortened. When its ShadowPod goes, the provider gives it what its spec says. Longer than that is not to be
// had: of two grace periods Kubernetes takes the shorter one.
func (r *reflector) hasten(ctx context.Context, v *podView) error {
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
	err := r.m.callRemote(ctx, func(ctx context.Context) error {
		return r.m.remote.Resource(podsResource).Namespace(v.extension.remote).
			Delete(ctx, v.remote.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &most, Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	switch {
	case err == nil:
		r.counted("delete", "remote")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone
	case apierrors.IsForbidden(err): // as it is at Liqo's providers: it ends, in its own time
	default:
		return fmt.Errorf("shortening the grace period of pod %s/%s, %w", v.extension.remote, v.remote.GetName(), err)
	}
	v.state.hastened = most
	return nil
}

// straggling is how long a request may still arrive after its answer was given up: it may lie in the buffer of a proxy, or
// be on its way through a connection that is lost for us.
const straggling = 2 * time.Second

// shadowIsGone is an error as long as the pod may have a ShadowPod that the cache does not show. A cache says what was, and a
// create that has no answer is an open question: only the deletion that the watch has delivered, or the API server itself,
// says that there is none. Who lets the pod go earlier has it run twice, once here under the same name.
func (r *reflector) shadowIsGone(ctx context.Context, v *podView) error {
	known := v.state.shadow
	switch {
	case known == asked{} || v.copies.writes.IsGone(known.uid):
		return nil // never asked for by this process, and listed since it began; or seen to go
	case r.m.options.Clock.Since(known.since) < straggling:
		return &retryLater{straggling - r.m.options.Clock.Since(known.since)}
	}
	var foreign *foreignError
	if err := r.mustBeFree(ctx, v.extension, v.copies, v.key); err != nil && !errors.As(err, &foreign) {
		return err
	}
	v.state.shadow = asked{}
	return nil
}

// letGo ends a pod of which nothing is left on the provider. Who holds it by a finalizer (a Job counts its pods that way)
// may wait for it to be over, and a kubelet sees to that before it lets a pod go.
func (r *reflector) letGo(ctx context.Context, w *worker, v *podView) error {
	if len(v.local.GetFinalizers()) > 0 && !pods.Finished(pods.Phase(v.status)) {
		over := pods.Reject(v.status, corev1.PodFailed, wire.RemotePodTerminatedReason, "", r.m.options.Clock.Now())
		if err := r.patchStatus(ctx, w, v.local, over, marks{}); err != nil {
			return err
		}
	}
	return r.deleteLocalPod(ctx, w, v.local)
}
