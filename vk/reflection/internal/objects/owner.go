// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// StatusFromAnnotation is an annotation of a local object whose status comes from a provider. Its value is the cluster
// ID of the provider. An object has only one status, but it may have copies on several providers, and a controller in
// this cluster. Whichever writes the status first owns it, until the owner retracts the status, the status is empty, or
// the owner's cluster is no longer known to this cluster.
//
// If the value is the ID of this cluster, a controller of this cluster owns the status, because it has overwritten the
// provider's status (see yield). It is the owner until the status is empty, or the class of the object names another
// controller.
const StatusFromAnnotation = wire.StatusFromAnnotation

// StatusHashAnnotation is set together with StatusFromAnnotation. If StatusFromAnnotation is a provider, it contains a
// hash of the reflected status. If the hash of the status differs, the managedFields show who has written the status
// since then. If StatusFromAnnotation is this cluster, it contains a hash of the fields that determine which controller
// is responsible.
const StatusHashAnnotation = wire.StatusHashAnnotation

// StatusOverruledReason is the reason of the Event about a provider's status that is no longer written because a
// controller of this cluster writes the status.
const StatusOverruledReason = "StatusOverruled"

// ownership describes the owner of a status, from the point of view of this virtual kubelet.
type ownership int

const (
	// owned means that this virtual kubelet writes the status.
	owned ownership = iota
	// free means that the status has no owner. This virtual kubelet may write it when the provider has a status.
	free
	// foreign means that another cluster, or a controller of this cluster, owns the status.
	foreign
	// overruled means that a controller of this cluster has overwritten the status that this virtual kubelet had
	// written.
	overruled
)

// ownerOf returns the ownership of an object's status. If it is overruled, by is the field manager that wrote the
// status.
func (o *Writer) ownerOf(ctx context.Context, local *unstructured.Unstructured, present map[string]any) (_ ownership, by string, err error) {
	from, _ := raw.Annotations(local.Object)[StatusFromAnnotation].(string)
	said, _ := raw.Annotations(local.Object)[StatusHashAnnotation].(string)
	whole := o.spec.Fields == nil
	switch {
	case from == o.remoteClusterID && (whole || said == "" || o.claimsNothing(present) || said == o.hashShown(present)):
		return owned, "", nil
	case from == o.remoteClusterID:
		// A difference does not prove that there is another writer, because API servers also add defaults and drop
		// fields. Only a field manager proves it.
		if by, err = o.statusWriter(ctx, local); by != "" && err == nil {
			return overruled, by, nil
		}
		return owned, "", err
	case whole && from == "":
		// The user has enabled this status, and knows whether a controller of this cluster owns it.
		return owned, "", nil
	case from != "" && from != o.localClusterID && !o.knowsCluster(from):
		return owned, "", nil
	case whole:
		return foreign, "", nil
	case o.claimsNothing(present), from == o.localClusterID && said != "" && said != o.hashClass(local):
		return free, "", nil
	case from != "":
		return foreign, "", nil
	}
	// Either another client has removed our annotations, for example with kubectl replace, or we have never written the
	// status.
	lost, err := o.isLostStatus(ctx, local, present)
	if err == nil && lost {
		return owned, "", nil
	}
	return foreign, "", err
}

// claimsNothing reports whether the reflected fields of a status are empty. Either the owner has removed them, or the
// API server has cleared them, for example after a change of a Service's type.
func (o *Writer) claimsNothing(status map[string]any) bool {
	for _, field := range o.spec.Fields {
		if !raw.IsEmpty(status[field]) {
			return false
		}
	}
	return true
}

// hashShown returns a hash of the reflected fields.
func (o *Writer) hashShown(status map[string]any) string {
	fields := map[string]any{}
	for _, field := range o.spec.Fields {
		if !raw.IsEmpty(status[field]) {
			fields[field] = status[field]
		}
	}
	return strconv.FormatUint(document.Hash(fields), 16)
}

// hashClass returns a hash of the fields that determine which controller is responsible for an object.
func (o *Writer) hashClass(local *unstructured.Unstructured) string {
	var sum uint64
	for _, path := range o.spec.Class {
		sum += content.FieldHash(path[len(path)-1], document.Of(raw.Nested(local.Object, path...)))
	}
	return strconv.FormatUint(sum, 16)
}

// statusWriter returns the field manager that has written the reflected fields of the status, or "" if there is none.
// Refract's own field managers are ignored.
func (o *Writer) statusWriter(ctx context.Context, local *unstructured.Unstructured) (manager string, err error) {
	entries, err := o.managersHere(ctx, local)
	return writerOf(entries, o.spec.Fields), err
}

// managersHere reads the field managers of a local object from the API server, because they are not cached. It returns
// an empty list if the object no longer exists.
func (o *Writer) managersHere(ctx context.Context, local *unstructured.Unstructured) (entries []metav1.ManagedFieldsEntry, err error) {
	err = o.clients.CallLocal(ctx, func(ctx context.Context) error {
		found, err := o.clients.Here.Metadata.Resource(o.source).Namespace(local.GetNamespace()).Get(ctx, local.GetName(), metav1.GetOptions{})
		if err == nil {
			entries = found.ManagedFields
		}
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("getting the field managers of %s %s/%s, %w", o.sourceKind, local.GetNamespace(), local.GetName(), err)
	}
	return entries, nil
}

// writerOf returns the last field manager that has written one of the given fields of the status. Refract's own field
// managers are ignored.
func writerOf(entries []metav1.ManagedFieldsEntry, fields []string) (manager string) {
	var last metav1.Time
	for i := range entries {
		entry := &entries[i]
		if wire.IsFieldManager(entry.Manager) || entry.FieldsV1 == nil || !ownsAny(entry.FieldsV1.GetRawBytes(), fields) {
			continue
		}
		if manager == "" || entry.Time != nil && last.Before(entry.Time) {
			manager = entry.Manager
			if entry.Time != nil {
				last = *entry.Time
			}
		}
	}
	return manager
}

// ownsAny reports whether a set of owned fields contains one of the given fields of the status.
func ownsAny(set []byte, fields []string) bool {
	var decoded struct {
		Status map[string]map[string]any `json:"f:status"`
	}
	if json.Unmarshal(set, &decoded) != nil {
		return true // If a set cannot be parsed, its manager is treated as an owner.
	}
	for _, field := range fields {
		if len(decoded.Status["f:"+field]) > 0 {
			return true
		}
	}
	return false
}

// strangers remembers statuses without Refract's annotations that a field manager of this cluster has written. The zero
// value is ready for use. strangers is safe for concurrent use.
type strangers struct {
	mu     sync.Mutex
	hashes map[queue.Key]string
}

func (s *strangers) knows(key queue.Key, hash string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hashes[key] == hash
}

func (s *strangers) note(key queue.Key, hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hashes == nil {
		s.hashes = map[queue.Key]string{}
	}
	s.hashes[key] = hash
}

func (s *strangers) forget(key queue.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hashes, key)
}

// isLostStatus reports whether a virtual kubelet wrote a status whose annotations were removed later.
func (o *Writer) isLostStatus(ctx context.Context, local *unstructured.Unstructured, present map[string]any) (bool, error) {
	key, hash := raw.Key(local), o.hashShown(present)
	if o.strangers.knows(key, hash) {
		return false, nil
	}
	by, err := o.statusWriter(ctx, local)
	if err == nil && by != "" {
		o.strangers.note(key, hash)
	}
	return err == nil && by == "", err
}

// yield stops writing a status that a controller of this cluster also writes. Otherwise the virtual kubelet and the
// controller would keep overwriting each other's status. Only the user can decide which status is right, so an Event
// describes the options.
func (o *Writer) yield(ctx context.Context, w *evaluation.Worker, local *unstructured.Unstructured, by string) error {
	patch := clients.AddEntries(clients.Unchanged(local), "/metadata/annotations", raw.Annotations(local.Object),
		map[string]string{StatusFromAnnotation: o.localClusterID, StatusHashAnnotation: o.hashClass(local)})
	stored, err := o.PatchLocal(ctx, local, patch, o.statusSubresource()...)
	if err != nil || stored == nil {
		return err
	}
	w.Result, w.Warned = "written", true
	o.events.Warn(local, StatusOverruledReason, fmt.Sprintf(
		"a controller of this cluster (field manager %q) updated the status; the status from cluster %s is no longer shown. To show it again, use a class that no controller of this cluster serves, or clear the status",
		by, o.remoteClusterID))
	return nil
}

// remark updates the annotations of a status that is already correct. This is needed if the API server has stored the
// status in a different form, or if another client has removed the annotations. An empty status needs no annotations.
func (o *Writer) remark(ctx context.Context, local *unstructured.Unstructured, present map[string]any) error {
	have := raw.Annotations(local.Object)
	if o.spec.Fields == nil || o.claimsNothing(present) || have[StatusFromAnnotation] == o.remoteClusterID && have[StatusHashAnnotation] == nil {
		return nil
	}
	marks := clients.AddEntries(nil, "/metadata/annotations", have, o.marked(present))
	if len(marks) == 0 {
		return nil
	}
	_, err := o.PatchLocal(ctx, local, append(marks, clients.Unchanged(local)...), o.statusSubresource()...)
	return err
}
