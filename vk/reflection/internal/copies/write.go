// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/readonly"
)

// Soon is the delay before another reconciliation of a copy that another process has just written with our labels.
const Soon = 100 * time.Millisecond

func (c *Writer) reader(s *Namespace) dynamic.ResourceInterface {
	return c.clients.Remote.Resource(c.Resource).Namespace(s.Remote)
}

// writer returns the client for writes. Its responses contain managedFields, which show whether a change was made by
// admission.
func (c *Writer) writer(s *Namespace) dynamic.ResourceInterface {
	return c.clients.RemoteWriter.Resource(c.Resource).Namespace(s.Remote)
}

// Converge writes the copy if it differs from the desired state.
func (c *Writer) Converge(ctx context.Context, w *evaluation.Worker, s *Namespace, local, remote *unstructured.Unstructured) error {
	x, err := c.Desired(w, s, local)
	if err != nil {
		return err
	}
	if c.spec.Mode == Apply {
		x.Extra = map[string]string{OriginUIDAnnotation: string(local.GetUID())}
	}
	if c.spec.Annotations != nil {
		maps.Copy(x.Extra, c.spec.Annotations(local))
	}
	if c.spec.Lesser != nil {
		x.Lesser = func() []*unstructured.Unstructured { return c.lesser(x.Build(w, remote), remote) }
	}
	return c.Write(ctx, w, x, remote)
}

// lesser returns reduced objects that the API server may accept instead of object. They do not have the annotation with
// the hash of the desired state. With this annotation, the reduced values would count as decisions of admission.
func (c *Writer) lesser(object, remote *unstructured.Unstructured) []*unstructured.Unstructured {
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", AppliedHashAnnotation)
	return c.spec.Lesser(object, remote)
}

// Write creates the copy, or updates it to the desired state.
func (c *Writer) Write(ctx context.Context, w *evaluation.Worker, x *Desired, remote *unstructured.Unstructured) error {
	if remote == nil {
		if x.local.GetDeletionTimestamp() != nil {
			return nil // there is no copy, and none is created for an object that is being deleted
		}
		return c.Create(ctx, w, x)
	}
	if remote.GetDeletionTimestamp() != nil {
		return nil
	}
	if x.same(w, remote) {
		w.Matched = remote.GetGeneration()
		return nil
	}
	return c.Update(ctx, w, x, remote, x.Build(w, remote))
}

// Update sends the desired state of an existing copy. It sends nothing if an earlier response has shown that the update
// has no effect, or if another client reverts it repeatedly.
func (c *Writer) Update(ctx context.Context, w *evaluation.Worker, x *Desired, remote, object *unstructured.Unstructured) error {
	key, hash := x.Key, x.hash(w)
	if x.scope.accepted.Accepted(key, hash, c.stored(remote), c.clock.Now()) {
		w.Matched = remote.GetGeneration()
		// The Warning about the rejected part of the last write is still valid.
		w.Warned = w.Warned || x.scope.accepted.Expires(key)
		return nil
	}
	if err := readonly.Refuse(ctx, "update", c.copyKind, x.Namespace, x.Name); err != nil {
		return err
	}
	if err := c.mayWrite(ctx, x, hash, object); err != nil {
		return err
	}
	object, covered, err := c.withAdmitted(ctx, w, x, remote, object)
	if err != nil {
		return err
	}
	if covered {
		x.scope.accepted.Accept(key, hash, c.stored(remote))
		w.Matched = remote.GetGeneration()
		return nil
	}
	defer c.queue.Writing(x.scope.writes, key)()
	sent := object
	stored, err := c.send(ctx, x, sent)
	if apierrors.IsNotFound(err) || c.spec.Mode == Apply && apierrors.IsConflict(err) {
		return c.vanished(ctx, x, remote, err)
	}
	if failure.IsImmutability(err) && StandsForAnother(remote, x.local) {
		// The local object was created again with another value in an immutable field. The copy will be created again
		// after its deletion.
		return c.Remove(ctx, w, x.scope, remote)
	}
	if failure.IsImmutability(err) && !c.spec.FixedSpec {
		whole, unread := c.WholeCopy(ctx, x.scope, remote)
		if unread != nil {
			return unread
		}
		if rest := withImmutable(object, whole, err); rest != nil {
			refusal := err
			if stored, err = c.send(ctx, x, rest); err == nil {
				sent = rest
				c.warnImmutable(w, x, refusal)
			}
		}
	}
	partial := false
	if x.Lesser != nil && denied(err) {
		sent, stored, err = c.sendLesser(ctx, w, x, "update", err, c.send)
		partial = err == nil
	}
	if err != nil {
		return fmt.Errorf("updating %s %s/%s, %w", c.copyKind, x.Namespace, x.Name, err)
	}
	err = c.wrote(ctx, w, hash, x, remote, sent, stored)
	c.retryPart(x, partial)
	return err
}

// sendLesser sends reduced objects after a rejection, and warns about the omitted part. If no reduced object is
// accepted, it returns the error of the last attempt.
func (c *Writer) sendLesser(ctx context.Context, w *evaluation.Worker, x *Desired, write string, refusal error,
	send func(context.Context, *Desired, *unstructured.Unstructured) (*unstructured.Unstructured, error)) (sent, stored *unstructured.Unstructured, err error) {
	err = refusal
	for _, rest := range x.Lesser() {
		if x.stored != nil {
			rest = rest.DeepCopy() // a deep copy, because rest shares memory with the cache
			x.admitted.Apply(rest.Object, x.stored.Object)
		}
		if stored, err = send(ctx, x, rest); err == nil {
			w.Warned = true
			c.events.Warn(x.local, wire.FailedReflectionReason, fmt.Sprintf("cluster %s: part of the %s was rejected, the rest was applied%s: %v",
				c.remoteClusterID, write, c.spec.LesserEffect, refusal))
			return rest, stored, nil
		}
		if !denied(err) {
			break
		}
	}
	return nil, nil, err
}

// retryPart schedules another attempt of a write that was partially rejected, because the provider's admission may
// allow the rest later.
func (c *Writer) retryPart(x *Desired, partial bool) {
	if !partial {
		c.queue.PartRetries.Forget(x.Key)
		return
	}
	wait := c.queue.PartRetries.When(x.Key)
	x.scope.accepted.Expire(x.Key, c.clock.Now().Add(wait))
	c.queue.AddAfter(x.Key, wait)
}

// denied reports whether an admission webhook or validation has rejected a write.
func denied(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) && !readonly.Refused(err)
}

// send replaces an existing copy, or applies the object to it.
func (c *Writer) send(ctx context.Context, x *Desired, object *unstructured.Unstructured) (stored *unstructured.Unstructured, err error) {
	err = c.clients.CallRemote(ctx, func(ctx context.Context) (err error) {
		if c.spec.Mode == Replace {
			stored, err = c.writer(x.scope).Update(ctx, object, metav1.UpdateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: clients.FieldValidation})
		} else {
			stored, err = c.apply(ctx, x, object, true)
		}
		return err
	})
	return stored, err
}

// wrote remembers a write with its result, and records decisions of admission. before is the copy before the write, or
// nil for a new copy.
func (c *Writer) wrote(ctx context.Context, w *evaluation.Worker, hash uint64, x *Desired, before, sent, stored *unstructured.Unstructured) error {
	switch {
	case c.spec.Mode == Apply:
		c.writes.Count("patch", "remote")
	case before == nil:
		c.writes.Count("create", "remote")
	default:
		c.writes.Count("update", "remote")
	}
	key, s := x.Key, x.scope
	s.fights.RecordWrite(key, x.scope.cause(x.local), hash)
	w.Wrote(evaluation.Out)
	recorded, err := c.recordAdmitted(ctx, w, x, sent, stored)
	informer.DropManagedFields(stored)
	c.trim(stored)
	s.writes.Wrote(key, before, stored)
	if err != nil {
		return err
	}
	if recorded != stored {
		informer.DropManagedFields(recorded)
		c.trim(recorded)
		s.writes.Wrote(key, stored, recorded)
	}
	if !x.same(w, recorded) {
		s.accepted.Accept(key, hash, c.stored(recorded))
	}
	w.Matched = recorded.GetGeneration()
	return nil
}

// Create creates the copy if none is known. It never overwrites an existing object of the same name.
func (c *Writer) Create(ctx context.Context, w *evaluation.Worker, x *Desired) error {
	key, hash := x.Key, x.hash(w)
	object := x.Build(w, nil)
	if err := readonly.Refuse(ctx, "create", c.copyKind, x.Namespace, x.Name); err != nil {
		return err
	}
	if err := c.mayWrite(ctx, x, hash, object); err != nil {
		return err
	}
	defer c.queue.Writing(x.scope.writes, key)()
	stored, err := c.sendNew(ctx, x, object)
	if apierrors.IsConflict(err) && c.spec.Mode == Apply {
		if err := c.MustBeFree(ctx, x.scope, key); err != nil {
			return err
		}
		// No object has this name. The apply is repeated without a resourceVersion, because either the name has become
		// free in the meantime, or the API server does not create objects with a resourceVersion.
		object.SetResourceVersion("")
		stored, err = c.sendNew(ctx, x, object)
	}
	partial := false
	if x.Lesser != nil && denied(err) {
		object, stored, err = c.sendLesser(ctx, w, x, "object", err, c.sendNew)
		partial = err == nil
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		if err := c.MustBeFree(ctx, x.scope, key); err != nil {
			return err
		}
		return &failure.RetryAfter{After: Soon}
	case apierrors.IsConflict(err) && c.spec.Mode == Apply:
		return &failure.ForeignError{Kind: c.copyKind, Namespace: x.Namespace, Name: x.Name}
	case err != nil:
		return fmt.Errorf("creating %s %s/%s, %w", c.copyKind, x.Namespace, x.Name, err)
	}
	err = c.wrote(ctx, w, hash, x, nil, object, stored)
	c.retryPart(x, partial)
	return err
}

// neverStored is a resourceVersion that no object has. With it, an apply creates an object if the name is free, and
// fails with a conflict otherwise. Without it, an apply would change the existing object.
const neverStored = "9223372036854775807"

// sendNew creates an object. If the mode is Apply, the apply fails if the object exists.
func (c *Writer) sendNew(ctx context.Context, x *Desired, object *unstructured.Unstructured) (stored *unstructured.Unstructured, err error) {
	err = c.clients.CallRemote(ctx, func(ctx context.Context) (err error) {
		if c.spec.Mode == Replace {
			stored, err = c.writer(x.scope).Create(ctx, object, metav1.CreateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: clients.FieldValidation})
		} else {
			stored, err = c.apply(ctx, x, object, false)
		}
		return err
	})
	return stored, err
}

// apply applies the object server-side. If the provider's API server does not know some of its fields, it repeats the
// apply without them.
func (c *Writer) apply(ctx context.Context, x *Desired, object *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	stored, err := c.applyWhole(ctx, x, object, force)
	if rest := withoutUndeclared(object, err); rest != nil {
		return c.applyWhole(ctx, x, rest, force)
	}
	return stored, err
}

// applyWhole applies the whole object server-side. It does not use Apply of the dynamic client, which has no option
// for the field validation, so that the API server would parse the whole patch twice.
func (c *Writer) applyWhole(ctx context.Context, x *Desired, object *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	patch, err := runtime.Encode(unstructured.UnstructuredJSONScheme, object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s/%s, %w", c.copyKind, x.Namespace, x.Name, err)
	}
	return c.writer(x.scope).Patch(ctx, x.Name, types.ApplyYAMLPatchType, patch, metav1.PatchOptions{FieldManager: wire.ReflectionFieldManager, Force: &force, FieldValidation: clients.FieldValidation})
}

// rereadDelay is the delay before a reconciliation with the state that was just read. It is very short, but lets
// objects that are already waiting go first.
const rereadDelay = time.Millisecond

// MustBeFree returns an error if a name is not free on the provider. If a foreign object has the name, the error is a
// *failure.ForeignError. If our own copy has the name, because the watch is late, the copy is recorded and the object
// is enqueued again.
func (c *Writer) MustBeFree(ctx context.Context, s *Namespace, key queue.Key) error {
	found, err := c.lookUp(ctx, s, key)
	switch {
	case err != nil || found == nil:
		return err
	case !c.Managed(found):
		ours := labels.SelectorFromSet(wire.ReflectionLabels(c.localClusterID, c.remoteClusterID)).Matches(labels.Set(found.GetLabels()))
		return &failure.ForeignError{Kind: c.copyKind, Namespace: s.Remote, Name: found.GetName(), Ours: ours}
	}
	s.writes.Wrote(key, found, found)
	return &failure.RetryAfter{After: rereadDelay}
}

// lookUp reads the object with the name of a copy from the provider and not from the cache. It returns the part that
// the cache would contain, or nil if the object does not exist.
func (c *Writer) lookUp(ctx context.Context, s *Namespace, key queue.Key) (*unstructured.Unstructured, error) {
	found, err := c.read(ctx, s, c.RemoteName(key.Name))
	if found != nil {
		c.trim(found)
	}
	return found, err
}

// read reads an object of the provider. It returns nil if the object does not exist.
func (c *Writer) read(ctx context.Context, s *Namespace, name string) (found *unstructured.Unstructured, err error) {
	err = c.clients.CallRemote(ctx, func(ctx context.Context) (err error) {
		found, err = c.reader(s).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s %s/%s, %w", c.copyKind, s.Remote, name, err)
	}
	return found, nil
}

// vanished handles an update that has found no copy, or a different copy than the cached one. The cache is outdated in
// this case, and it is not known for how long. The copy is created again, or the object that now has its name is
// handled.
func (c *Writer) vanished(ctx context.Context, x *Desired, remote *unstructured.Unstructured, refusal error) error {
	found, err := c.lookUp(ctx, x.scope, x.Key)
	if err != nil {
		return err
	}
	if found != nil && found.GetUID() == remote.GetUID() {
		return fmt.Errorf("updating %s %s/%s, %w", c.copyKind, x.Namespace, x.Name, refusal)
	}
	return c.replaced(x.scope, x.Key, remote, found)
}

// replaced records that a copy no longer exists, and enqueues its object again. found is the object that has the name
// of the copy now, or nil.
func (c *Writer) replaced(s *Namespace, key queue.Key, remote, found *unstructured.Unstructured) error {
	s.writes.Vanished(key, remote.GetUID())
	if found != nil && c.Managed(found) {
		c.trim(found)
		s.writes.Wrote(key, found, found)
	}
	return &failure.RetryAfter{After: rereadDelay}
}

// Remove deletes our copy. The UID of the copy is a precondition.
func (c *Writer) Remove(ctx context.Context, w *evaluation.Worker, s *Namespace, remote *unstructured.Unstructured) error {
	if remote == nil || remote.GetDeletionTimestamp() != nil {
		return nil
	}
	if err := readonly.Refuse(ctx, "delete", c.copyKind, s.Remote, remote.GetName()); err != nil {
		return err
	}
	key, uid := s.Key(c.LocalName(remote.GetName())), remote.GetUID()
	err := c.clients.CallRemote(ctx, func(ctx context.Context) error {
		return c.reader(s).Delete(ctx, remote.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s %s/%s, %w", c.copyKind, s.Remote, remote.GetName(), err)
	}
	w.Deleted(evaluation.Out)
	if err != nil {
		// The copy no longer exists. It may have been removed by an earlier deletion of this process, whose response
		// was lost. If the watch has never delivered the copy, it will not deliver the deletion either.
		s.writes.Vanished(key, uid)
		return &failure.RetryAfter{After: rereadDelay}
	}
	c.writes.Count("delete", "remote")
	s.writes.Deleted(key, remote)
	return nil
}

// Selector returns the label selector for the copies.
func (c *Writer) Selector() string {
	selector := labels.Set(c.owned).String()
	if c.spec.Except != "" {
		selector += "," + c.spec.Except
	}
	return selector
}

// Managed reports whether an object of the provider has the labels of objects that this virtual kubelet has created.
func (c *Writer) Managed(object *unstructured.Unstructured) bool {
	return c.selects.Matches(labels.Set(object.GetLabels()))
}

// RemoteName returns the name of the copy of an object.
func (c *Writer) RemoteName(local string) string {
	if name, ok := c.there[local]; ok {
		return name
	}
	return local + c.spec.Suffix
}

// LocalName returns the name of the object that a copy belongs to.
func (c *Writer) LocalName(remote string) string {
	if name, ok := c.here[remote]; ok {
		return name
	}
	return strings.TrimSuffix(remote, c.spec.Suffix)
}
