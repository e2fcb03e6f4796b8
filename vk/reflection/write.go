// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
)

// soon is when to look again at what another process wrote under our labels a moment ago.
const soon = 100 * time.Millisecond

// fieldValidation saves the API server a second, strict look at what we send: by default it warns of fields it does not know. What we
// write was read from an API server; a field that the other one does not keep is found by comparing what it stored.
const fieldValidation = metav1.FieldValidationIgnore

// callRemote makes one call to the provider: not at all while it is known to be unreachable, and never without a deadline.
// A call that passes it while the provider answers others is a *slowError.
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
	return err
}

// callLocal makes one call to this cluster.
func (m *Manager) callLocal(ctx context.Context, call func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, m.options.CallTimeout)
	defer cancel()
	return call(bounded)
}

func (r *reflector) target(t *extension) dynamic.ResourceInterface {
	return r.m.remote.Resource(r.kind.target()).Namespace(t.remote)
}

func (r *reflector) counted(verb, cluster string) {
	r.m.metrics.writes.WithLabelValues(r.kind.Name, verb, cluster).Inc()
}

// converge writes the copy when it does not say what is wanted.
func (r *reflector) converge(ctx context.Context, w *worker, t *extension, c *copies, local, remote *unstructured.Unstructured) error {
	x, err := r.want(w, t, c, local)
	if err != nil {
		return err
	}
	if r.kind.Mode == Apply {
		x.extra = map[string]string{OriginUIDAnnotation: string(local.GetUID())}
	}
	return r.writeWanted(ctx, w, t, x, remote)
}

// writeWanted makes the copy what is wanted.
func (r *reflector) writeWanted(ctx context.Context, w *worker, t *extension, x *wanted, remote *unstructured.Unstructured) error {
	if remote == nil {
		if x.local.GetDeletionTimestamp() != nil {
			return nil // it is too late to begin
		}
		return r.create(ctx, w, t, x)
	}
	if remote.GetDeletionTimestamp() != nil || x.same(w, remote) {
		return nil
	}
	return r.update(ctx, w, t, x, remote, x.build(w, remote))
}

// update sends what is wanted, unless the API server has shown that it is vain, or that there is a fight.
func (r *reflector) update(ctx context.Context, w *worker, t *extension, x *wanted, remote, object *unstructured.Unstructured) error {
	key, hash, known := x.key, x.hash(w), x.copies.memory
	if known.Accepted(key, hash, r.stored(remote)) {
		return nil
	}
	if err := known.MayWrite(key, x.cause(), hash); err != nil {
		return err
	}
	defer r.writing(x.copies.writes, key)()
	stored, err := r.send(ctx, t, x, object)
	if apierrors.IsNotFound(err) || r.kind.Mode == Apply && apierrors.IsConflict(err) {
		return r.vanished(ctx, t, x, remote, err)
	}
	if isImmutability(err) && standsForAnother(remote, x.local) {
		// Made anew here with another value where none may change: so is the copy, when it is gone.
		return r.remove(ctx, w, t, x.copies, remote)
	}
	if isImmutability(err) && !r.kind.FixedSpec {
		if rest := withImmutable(object, remote, err); rest != nil {
			refusal := err
			if stored, err = r.send(ctx, t, x, rest); err == nil {
				r.warnImmutable(w, x, refusal)
			}
		}
	}
	if x.lesser != nil && denied(err) {
		if rest := x.lesser(); rest != nil {
			refusal := err
			if stored, err = r.send(ctx, t, x, rest); err == nil {
				w.warned = true
				r.m.events.Warn(r.kind.Name, x.local, wire.FailedReflectionReason, fmt.Sprintf("cluster %s: a part of the change was refused, the rest was updated: %v", r.m.options.RemoteClusterID, refusal))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("updating %s %s/%s, %w", r.kind.target().Resource, t.remote, x.name, err)
	}
	verb := "update"
	if r.kind.Mode == Apply {
		verb = "patch"
	}
	r.wrote(w, t, hash, x, remote, stored, verb)
	return nil
}

// denied reports that an admission webhook, or validation, refuses a write.
func denied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// send replaces or applies.
func (r *reflector) send(ctx context.Context, t *extension, x *wanted, object *unstructured.Unstructured) (stored *unstructured.Unstructured, err error) {
	err = r.m.callRemote(ctx, func(ctx context.Context) (err error) {
		if r.kind.Mode == Replace {
			stored, err = r.target(t).Update(ctx, object, metav1.UpdateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: fieldValidation})
		} else {
			stored, err = r.target(t).Apply(ctx, x.name, object, metav1.ApplyOptions{FieldManager: wire.ReflectionFieldManager, Force: true})
		}
		return err
	})
	return stored, err
}

// writing announces a write; what it returns is called when all about it is recorded, and has the object looked at again
// when somebody else changed it meanwhile.
func (r *reflector) writing(l *mutationcache.Cache, key Key) (done func()) {
	l.Begin(key)
	return func() {
		if l.End(key) {
			r.queue.Add(key)
		}
	}
}

// wrote remembers a write, and what the API server made of it when that is not what was asked.
func (r *reflector) wrote(w *worker, t *extension, hash uint64, x *wanted, before, stored *unstructured.Unstructured, verb string) {
	_, _ = informer.DropManagedFields(stored)
	r.counted(verb, "remote")
	key, c := x.key, x.copies
	c.writes.Wrote(key, before, stored)
	c.memory.Wrote(key, x.cause(), hash)
	if !x.same(w, stored) {
		c.memory.Accept(key, hash, r.stored(stored))
	}
	w.result = "written"
}

// create makes the copy where none of ours is known. What is there already under that name is never overwritten.
func (r *reflector) create(ctx context.Context, w *worker, t *extension, x *wanted) error {
	key, hash := x.key, x.hash(w)
	if err := x.copies.memory.MayWrite(key, x.cause(), hash); err != nil {
		return err
	}
	object := x.build(w, nil)
	if r.kind.Mode == Apply {
		if err := r.mustBeFree(ctx, t, x.copies, key); err != nil {
			return err
		}
	}
	defer r.writing(x.copies.writes, key)()
	var stored *unstructured.Unstructured
	err := r.m.callRemote(ctx, func(ctx context.Context) (err error) {
		if r.kind.Mode == Replace {
			stored, err = r.target(t).Create(ctx, object, metav1.CreateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: fieldValidation})
		} else {
			stored, err = r.target(t).Apply(ctx, x.name, object, metav1.ApplyOptions{FieldManager: wire.ReflectionFieldManager})
		}
		return err
	})
	switch {
	case apierrors.IsAlreadyExists(err):
		if err := r.mustBeFree(ctx, t, x.copies, key); err != nil {
			return err
		}
		return &retryLater{soon}
	case apierrors.IsConflict(err) && r.kind.Mode == Apply:
		return &foreignError{r.kind.target().Resource, t.remote, x.name}
	case err != nil:
		return fmt.Errorf("creating %s %s/%s, %w", r.kind.target().Resource, t.remote, x.name, err)
	}
	verb := "create"
	if r.kind.Mode == Apply {
		verb = "patch"
	}
	r.wrote(w, t, hash, x, nil, stored, verb)
	return nil
}

// mustBeFree looks what bears the name on the provider: nothing is fine, a foreign object is a *foreignError, and one
// of ours (the watch is late) is taken note of and looked at again.
func (r *reflector) mustBeFree(ctx context.Context, t *extension, c *copies, key Key) error {
	found, err := r.lookUp(ctx, t, key)
	switch {
	case err != nil || found == nil:
		return err
	case !r.managed(found):
		return &foreignError{r.kind.target().Resource, t.remote, found.GetName()}
	}
	c.writes.Wrote(key, found, found)
	return &retryLater{time.Millisecond}
}

// lookUp reads what bears the name of a copy from the provider, past the cache; nil for nothing.
func (r *reflector) lookUp(ctx context.Context, t *extension, key Key) (found *unstructured.Unstructured, err error) {
	name := r.remoteName(key.Name)
	err = r.m.callRemote(ctx, func(ctx context.Context) (err error) {
		found, err = r.target(t).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s %s/%s, %w", r.kind.target().Resource, t.remote, name, err)
	}
	_, _ = informer.DropManagedFields(found)
	return found, nil
}

// vanished decides about an update that found no copy, or not the one that the cache shows. When that is so, the cache is
// behind, for however long: the copy is made again, or what is there in its place is looked at.
func (r *reflector) vanished(ctx context.Context, t *extension, x *wanted, remote *unstructured.Unstructured, refusal error) error {
	found, err := r.lookUp(ctx, t, x.key)
	if err != nil {
		return err
	}
	if found != nil && found.GetUID() == remote.GetUID() {
		return fmt.Errorf("updating %s %s/%s, %w", r.kind.target().Resource, t.remote, x.name, refusal)
	}
	x.copies.writes.Vanished(x.key, remote.GetUID())
	if found != nil && r.managed(found) {
		x.copies.writes.Wrote(x.key, found, found)
	}
	return &retryLater{time.Millisecond}
}

// remove deletes our copy, and only the very one that is known.
func (r *reflector) remove(ctx context.Context, w *worker, t *extension, c *copies, remote *unstructured.Unstructured) error {
	if remote == nil || remote.GetDeletionTimestamp() != nil {
		return nil
	}
	key, uid := Key{Namespace: t.local, Name: r.localName(remote.GetName())}, remote.GetUID()
	err := r.m.callRemote(ctx, func(ctx context.Context) error {
		return r.target(t).Delete(ctx, remote.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s %s/%s, %w", r.kind.target().Resource, t.remote, remote.GetName(), err)
	}
	if err == nil {
		r.counted("delete", "remote")
		c.writes.Deleted(key, remote)
	} else {
		c.writes.Vanished(key, uid)
	}
	w.result = "deleted"
	return nil
}
