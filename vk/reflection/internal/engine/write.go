// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
)

// Soon is the delay before another reconciliation of a copy that another process wrote a moment ago under our labels.
const Soon = 100 * time.Millisecond

// FieldValidation saves the API server a second, strict decoding of our writes: by default it warns about unknown
// fields. The objects that we write were read from an API server, and a field that the other API server drops is found
// by comparing the stored object.
const FieldValidation = metav1.FieldValidationIgnore

// callRemote makes one call to the provider, always with a deadline. It fails at once while the provider is known to be
// unreachable. A call that exceeds its deadline while the provider responds to others returns a *slowError.
func (m *Manager) callRemote(ctx context.Context, call func(context.Context) error) error {
	if err := m.breaker.Allow(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, m.options.CallTimeout)
	defer cancel()
	err := call(bounded)
	if err != nil && ctx.Err() == nil && !m.breaker.Heed(err) && breaker.Overdue(err) {
		return &slowError{m.options.CallTimeout}
	}
	return throttled("the API server of cluster "+m.options.RemoteClusterID, err)
}

// callLocal makes one call to this cluster.
func (m *Manager) callLocal(ctx context.Context, call func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, m.options.CallTimeout)
	defer cancel()
	return throttled("this cluster's API server", call(bounded))
}

func (r *reflector) target(s *Scope) dynamic.ResourceInterface {
	return r.m.remote.Resource(r.kind.target()).Namespace(s.namespace.remote)
}

// writer returns the client for writes. Its responses have managedFields, which distinguish changes by admission from
// other changes.
func (r *reflector) writer(s *Scope) dynamic.ResourceInterface {
	return r.m.writer.Resource(r.kind.target()).Namespace(s.namespace.remote)
}

func (r *reflector) counted(verb, cluster string) {
	r.m.metrics.writes.WithLabelValues(r.kind.Name, verb, cluster).Inc()
}

// converge writes the copy if it differs from the desired state.
func (r *reflector) converge(ctx context.Context, w *Worker, s *Scope, local, remote *unstructured.Unstructured) error {
	x, err := r.desired(w, s, local)
	if err != nil {
		return err
	}
	if r.kind.Copy.Mode == Apply {
		x.Extra = map[string]string{OriginUIDAnnotation: string(local.GetUID())}
	}
	if r.kind.Copy.Lesser != nil {
		x.Lesser = func() []*unstructured.Unstructured { return r.lesser(x.Build(w, remote), remote) }
	}
	return r.write(ctx, w, x, remote)
}

// lesser lists what may be accepted instead of an object. None of it has the hash of what is desired: its values are not what admission has made of that.
func (r *reflector) lesser(object, remote *unstructured.Unstructured) []*unstructured.Unstructured {
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", AppliedHashAnnotation)
	return r.kind.Copy.Lesser(object, remote)
}

// write makes the copy equal to the desired state.
func (r *reflector) write(ctx context.Context, w *Worker, x *Desired, remote *unstructured.Unstructured) error {
	if remote == nil {
		if x.local.GetDeletionTimestamp() != nil {
			return nil // the object is being deleted
		}
		return r.create(ctx, w, x)
	}
	if remote.GetDeletionTimestamp() != nil {
		return nil
	}
	if x.same(w, remote) {
		w.matched = remote.GetGeneration()
		return nil
	}
	return r.update(ctx, w, x, remote, x.Build(w, remote))
}

// update sends the desired state, unless the API server has shown that the update changes nothing, or another client
// keeps reverting it.
func (r *reflector) update(ctx context.Context, w *Worker, x *Desired, remote, object *unstructured.Unstructured) error {
	key, hash := x.Key, x.hash(w)
	if x.scope.accepted.accepted(key, hash, r.stored(remote), r.m.options.Clock.Now()) {
		w.matched = remote.GetGeneration()
		w.Warned = w.Warned || x.scope.accepted.expires(key) // the Warning about the rejected part is still true
		return nil
	}
	if err := r.mayWrite(ctx, x, hash, object); err != nil {
		return err
	}
	object, covered, err := r.withAdmitted(ctx, w, x, remote, object)
	if err != nil {
		return err
	}
	if covered {
		x.scope.accepted.accept(key, hash, r.stored(remote))
		w.matched = remote.GetGeneration()
		return nil
	}
	defer r.writing(x.scope.writes, key)()
	sent := object
	stored, err := r.send(ctx, x, sent)
	if apierrors.IsNotFound(err) || r.kind.Copy.Mode == Apply && apierrors.IsConflict(err) {
		return r.vanished(ctx, x, remote, err)
	}
	if isImmutability(err) && StandsForAnother(remote, x.local) {
		// The object was recreated here with another value of an immutable field. The copy is recreated once it is
		// gone.
		return r.remove(ctx, w, x.scope, remote)
	}
	if isImmutability(err) && !r.kind.Copy.FixedSpec {
		whole, unread := r.wholeCopy(ctx, x.scope, remote)
		if unread != nil {
			return unread
		}
		if rest := withImmutable(object, whole, err); rest != nil {
			refusal := err
			if stored, err = r.send(ctx, x, rest); err == nil {
				sent = rest
				r.warnImmutable(w, x, refusal)
			}
		}
	}
	partial := false
	if x.Lesser != nil && denied(err) {
		sent, stored, err = r.sendLesser(ctx, w, x, "update", err, r.send)
		partial = err == nil
	}
	if err != nil {
		return fmt.Errorf("updating %s %s/%s, %w", r.kind.targetKind(), x.Namespace, x.Name, err)
	}
	err = r.wrote(ctx, w, hash, x, remote, sent, stored)
	r.retryPart(x, partial)
	return err
}

// sendLesser sends less than what was refused, and warns about the rest. It returns the error of the last attempt if nothing is accepted.
func (r *reflector) sendLesser(ctx context.Context, w *Worker, x *Desired, write string, refusal error,
	send func(context.Context, *Desired, *unstructured.Unstructured) (*unstructured.Unstructured, error)) (sent, stored *unstructured.Unstructured, err error) {
	err = refusal
	for _, rest := range x.Lesser() {
		if x.stored != nil {
			rest = rest.DeepCopy() // it shares with the cache
			x.admitted.Apply(rest.Object, x.stored.Object)
		}
		if stored, err = send(ctx, x, rest); err == nil {
			w.Warned = true
			r.m.events.Warn(r.kind.Name, x.local, wire.FailedReflectionReason, fmt.Sprintf("cluster %s: part of the %s was rejected, the rest was applied%s: %v",
				r.m.options.RemoteClusterID, write, r.kind.Copy.LesserEffect, refusal))
			return rest, stored, nil
		}
		if !denied(err) {
			break
		}
	}
	return nil, nil, err
}

const (
	// FirstPartRetry is the delay before a partially rejected update is tried again. Each further delay is twice as
	// long. A shorter delay would count as a fight: see package oscillation.
	FirstPartRetry = 2 * time.Minute
	mostPartRetry  = time.Hour
)

// retryPart schedules another try of an update that was partially rejected: the provider's admission may allow the rest
// later.
func (r *reflector) retryPart(x *Desired, partial bool) {
	if !partial {
		r.partRetries.Forget(x.Key)
		return
	}
	wait := r.partRetries.When(x.Key)
	x.scope.accepted.expire(x.Key, r.m.options.Clock.Now().Add(wait))
	r.queue.AddAfter(x.Key, wait)
}

// denied reports whether an admission webhook, or validation, refuses a write.
func denied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// send replaces or applies the object.
func (r *reflector) send(ctx context.Context, x *Desired, object *unstructured.Unstructured) (stored *unstructured.Unstructured, err error) {
	err = r.m.callRemote(ctx, func(ctx context.Context) (err error) {
		if r.kind.Copy.Mode == Replace {
			stored, err = r.writer(x.scope).Update(ctx, object, metav1.UpdateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: FieldValidation})
		} else {
			stored, err = r.apply(ctx, x, object, true)
		}
		return err
	})
	return stored, err
}

// writing announces a write. The caller calls done when everything about the write is recorded; done enqueues the
// object again if another client changed it meanwhile.
func (r *reflector) writing(l *mutationcache.Cache, key Key) (done func()) {
	l.Begin(key)
	return func() {
		if l.End(key) {
			r.queue.Add(key)
		}
	}
}

// wrote remembers a write and its result, and records decisions of admission. before is nil for a new copy.
func (r *reflector) wrote(ctx context.Context, w *Worker, hash uint64, x *Desired, before, sent, stored *unstructured.Unstructured) error {
	switch {
	case r.kind.Copy.Mode == Apply:
		r.counted("patch", "remote")
	case before == nil:
		r.counted("create", "remote")
	default:
		r.counted("update", "remote")
	}
	key, s := x.Key, x.scope
	s.fights.RecordWrite(key, x.cause(), hash)
	w.Wrote(Out)
	recorded, err := r.recordAdmitted(ctx, w, x, sent, stored)
	informer.DropManagedFields(stored)
	r.trim(stored)
	s.writes.Wrote(key, before, stored)
	if err != nil {
		return err
	}
	if recorded != stored {
		informer.DropManagedFields(recorded)
		r.trim(recorded)
		s.writes.Wrote(key, stored, recorded)
	}
	if !x.same(w, recorded) {
		s.accepted.accept(key, hash, r.stored(recorded))
	}
	w.matched = recorded.GetGeneration()
	return nil
}

// create creates the copy when no copy of ours is known. An existing object of the same name is never overwritten.
func (r *reflector) create(ctx context.Context, w *Worker, x *Desired) error {
	key, hash := x.Key, x.hash(w)
	object := x.Build(w, nil)
	if err := r.mayWrite(ctx, x, hash, object); err != nil {
		return err
	}
	defer r.writing(x.scope.writes, key)()
	stored, err := r.sendNew(ctx, x, object)
	if apierrors.IsConflict(err) && r.kind.Copy.Mode == Apply {
		if err := r.mustBeFree(ctx, x.scope, key); err != nil {
			return err
		}
		// The name is free by now, or the API server does not create objects that have a resourceVersion.
		object.SetResourceVersion("")
		stored, err = r.sendNew(ctx, x, object)
	}
	partial := false
	if x.Lesser != nil && denied(err) {
		object, stored, err = r.sendLesser(ctx, w, x, "object", err, r.sendNew)
		partial = err == nil
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		if err := r.mustBeFree(ctx, x.scope, key); err != nil {
			return err
		}
		return &RetryAfter{Soon}
	case apierrors.IsConflict(err) && r.kind.Copy.Mode == Apply:
		return &ForeignError{kind: r.kind.targetKind(), namespace: x.Namespace, name: x.Name}
	case err != nil:
		return fmt.Errorf("creating %s %s/%s, %w", r.kind.targetKind(), x.Namespace, x.Name, err)
	}
	err = r.wrote(ctx, w, hash, x, nil, object, stored)
	r.retryPart(x, partial)
	return err
}

// neverStored is a resourceVersion that no object has. An apply with it creates an object if the name is free, and is a
// conflict otherwise. An apply without it would change the existing object.
const neverStored = "9223372036854775807"

// sendNew creates an object, or applies it if none exists.
func (r *reflector) sendNew(ctx context.Context, x *Desired, object *unstructured.Unstructured) (stored *unstructured.Unstructured, err error) {
	err = r.m.callRemote(ctx, func(ctx context.Context) (err error) {
		if r.kind.Copy.Mode == Replace {
			stored, err = r.writer(x.scope).Create(ctx, object, metav1.CreateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: FieldValidation})
		} else {
			stored, err = r.apply(ctx, x, object, false)
		}
		return err
	})
	return stored, err
}

// apply applies the object server-side, without the fields that the provider's API server does not know.
func (r *reflector) apply(ctx context.Context, x *Desired, object *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	stored, err := r.applyWhole(ctx, x, object, force)
	if rest := withoutUndeclared(object, err); rest != nil {
		return r.applyWhole(ctx, x, rest, force)
	}
	return stored, err
}

// applyWhole applies the whole object server-side. Apply of the dynamic client has no option for the field validation,
// so the API server would parse the whole patch twice.
func (r *reflector) applyWhole(ctx context.Context, x *Desired, object *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	patch, err := runtime.Encode(unstructured.UnstructuredJSONScheme, object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s/%s, %w", r.kind.targetKind(), x.Namespace, x.Name, err)
	}
	return r.writer(x.scope).Patch(ctx, x.Name, types.ApplyYAMLPatchType, patch, metav1.PatchOptions{FieldManager: wire.ReflectionFieldManager, Force: &force, FieldValidation: FieldValidation})
}

// mustBeFree checks whether a name is free on the provider. A foreign object is a *ForeignError. A copy of ours (the
// watch is late) is recorded and enqueued again.
func (r *reflector) mustBeFree(ctx context.Context, s *Scope, key Key) error {
	found, err := r.lookUp(ctx, s, key)
	switch {
	case err != nil || found == nil:
		return err
	case !r.managed(found):
		ours := labels.SelectorFromSet(wire.ReflectionLabels(r.m.options.LocalClusterID, r.m.options.RemoteClusterID)).Matches(labels.Set(found.GetLabels()))
		return &ForeignError{kind: r.kind.targetKind(), namespace: s.namespace.remote, name: found.GetName(), ours: ours}
	}
	s.writes.Wrote(key, found, found)
	return &RetryAfter{time.Millisecond}
}

// lookUp reads the object with the name of a copy from the provider, bypassing the cache, and returns the part that the
// cache would keep. It returns nil if the object does not exist.
func (r *reflector) lookUp(ctx context.Context, s *Scope, key Key) (*unstructured.Unstructured, error) {
	found, err := r.read(ctx, s, r.remoteName(key.Name))
	if found != nil {
		r.trim(found)
	}
	return found, err
}

// read reads an object of the provider. It returns nil if the object does not exist.
func (r *reflector) read(ctx context.Context, s *Scope, name string) (found *unstructured.Unstructured, err error) {
	err = r.m.callRemote(ctx, func(ctx context.Context) (err error) {
		found, err = r.target(s).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s %s/%s, %w", r.kind.targetKind(), s.namespace.remote, name, err)
	}
	return found, nil
}

// vanished handles an update that found no copy, or another one than the cache shows. The cache is behind then, for an
// unknown time: the copy is recreated, or the object in its place is reconciled.
func (r *reflector) vanished(ctx context.Context, x *Desired, remote *unstructured.Unstructured, refusal error) error {
	found, err := r.lookUp(ctx, x.scope, x.Key)
	if err != nil {
		return err
	}
	if found != nil && found.GetUID() == remote.GetUID() {
		return fmt.Errorf("updating %s %s/%s, %w", r.kind.targetKind(), x.Namespace, x.Name, refusal)
	}
	return r.replaced(x.scope, x.Key, remote, found)
}

// replaced records that a copy no longer exists, and has the object enqueued again. found is the object in its place,
// or nil.
func (r *reflector) replaced(s *Scope, key Key, remote, found *unstructured.Unstructured) error {
	s.writes.Vanished(key, remote.GetUID())
	if found != nil && r.managed(found) {
		r.trim(found)
		s.writes.Wrote(key, found, found)
	}
	return &RetryAfter{time.Millisecond}
}

// remove deletes our copy, with its uid as a precondition.
func (r *reflector) remove(ctx context.Context, w *Worker, s *Scope, remote *unstructured.Unstructured) error {
	if remote == nil || remote.GetDeletionTimestamp() != nil {
		return nil
	}
	key, uid := s.Key(r.localName(remote.GetName())), remote.GetUID()
	err := r.m.callRemote(ctx, func(ctx context.Context) error {
		return r.target(s).Delete(ctx, remote.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s %s/%s, %w", r.kind.targetKind(), s.namespace.remote, remote.GetName(), err)
	}
	w.Deleted(Out)
	if err != nil {
		// Our own deletion, whose response was lost, may have removed it. If the watch has never shown the copy, it
		// will not show its deletion either.
		s.writes.Vanished(key, uid)
		return &RetryAfter{time.Millisecond}
	}
	r.counted("delete", "remote")
	s.writes.Deleted(key, remote)
	return nil
}
