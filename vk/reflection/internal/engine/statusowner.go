// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

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
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// StatusFromAnnotation, on objects of this cluster with a status from a provider, is the cluster id of the provider. An
// object has one status and may have copies on several providers, and a controller of its own here. The first one to
// write the status owns it until it retracts the status, the status is empty, or its cluster is no longer known here.
//
// The id of this cluster itself means that a controller here owns the status, because it wrote the status after the
// provider; see yield. The controller owns it until the status is empty again, or another class of controllers is
// responsible.
const StatusFromAnnotation = wire.StatusFromAnnotation

// StatusHashAnnotation, beside StatusFromAnnotation, is a hash of the reflected status. If the status differs, the
// managedFields show who wrote it. Beside the id of this cluster, it is a hash of the fields that choose a controller.
const StatusHashAnnotation = wire.StatusHashAnnotation

// StatusOverruledReason is the reason of the Event about a provider's status that is no longer shown.
const StatusOverruledReason = "StatusOverruled"

// ownership is the relation of this virtual kubelet to the owner of a status.
type ownership int

const (
	// owned means that this virtual kubelet writes the status.
	owned ownership = iota
	// free means that nobody claims the status. This virtual kubelet may write it once the provider has one.
	free
	// foreign means that another cluster, or a controller of this one, owns the status.
	foreign
	// overruled means that a controller of this cluster has written the status after us.
	overruled
)

// ownerOf returns the ownership of the status of an object. by is the field manager that has overruled us.
func (r *reflector) ownerOf(ctx context.Context, local *unstructured.Unstructured, present map[string]any) (o ownership, by string, err error) {
	from, _ := raw.Annotations(local.Object)[StatusFromAnnotation].(string)
	said, _ := raw.Annotations(local.Object)[StatusHashAnnotation].(string)
	whole := r.kind.Status.Fields == nil
	switch {
	case from == r.m.options.RemoteClusterID && (whole || said == "" || r.claimsNothing(present) || said == r.hashShown(present)):
		return owned, "", nil
	case from == r.m.options.RemoteClusterID:
		// The API server defaults and drops fields, too, so only a field manager counts as a writer.
		if by, err = r.statusWriter(ctx, local); by != "" && err == nil {
			return overruled, by, nil
		}
		return owned, "", err
	case whole && from == "":
		return owned, "", nil // the user who enabled the status knows whether a controller of this cluster owns it
	case from != "" && from != r.m.options.LocalClusterID && !r.m.knowsCluster(from):
		return owned, "", nil
	case whole:
		return foreign, "", nil
	case r.claimsNothing(present), from == r.m.options.LocalClusterID && said != "" && said != r.hashClass(local):
		return free, "", nil
	case from != "":
		return foreign, "", nil
	}
	// Our annotations were removed, for example by kubectl replace, or we have never shown the status.
	lost, err := r.isLostStatus(ctx, local, present)
	if err == nil && lost {
		return owned, "", nil
	}
	return foreign, "", err
}

// claimsNothing reports whether the reflected fields of a status are empty: its owner has removed them, or the API
// server has cleared them, as happens when the type of a Service changes.
func (r *reflector) claimsNothing(status map[string]any) bool {
	for _, field := range r.kind.Status.Fields {
		if !raw.IsEmpty(status[field]) {
			return false
		}
	}
	return true
}

// hashShown returns the hash of the reflected fields.
func (r *reflector) hashShown(status map[string]any) string {
	fields := map[string]any{}
	for _, field := range r.kind.Status.Fields {
		if !raw.IsEmpty(status[field]) {
			fields[field] = status[field]
		}
	}
	return strconv.FormatUint(document.Hash(fields), 16)
}

// hashClass returns the hash of the fields that choose the controller of an object.
func (r *reflector) hashClass(local *unstructured.Unstructured) string {
	var sum uint64
	for _, path := range r.kind.Status.Class {
		sum += FieldHash(path[len(path)-1], document.Of(raw.Nested(local.Object, path...)))
	}
	return strconv.FormatUint(sum, 16)
}

// statusWriter returns the field manager, other than Refract, that has written the reflected fields of the status, or
// "" if there is none.
func (r *reflector) statusWriter(ctx context.Context, local *unstructured.Unstructured) (manager string, err error) {
	entries, err := r.managersHere(ctx, local)
	return writerOf(entries, r.kind.Status.Fields), err
}

// managersHere reads the field managers of an object of this cluster from the API server, because the cache drops them.
// The list is empty if the object is gone.
func (r *reflector) managersHere(ctx context.Context, local *unstructured.Unstructured) (entries []metav1.ManagedFieldsEntry, err error) {
	err = r.m.callLocal(ctx, func(ctx context.Context) error {
		found, err := r.m.here.Metadata.Resource(r.kind.Source).Namespace(local.GetNamespace()).Get(ctx, local.GetName(), metav1.GetOptions{})
		if err == nil {
			entries = found.ManagedFields
		}
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("getting the field managers of %s %s/%s, %w", r.kind.SourceKind().Kind, local.GetNamespace(), local.GetName(), err)
	}
	return entries, nil
}

// writerOf returns the latest field manager, other than Refract, that owns some of these fields of the status.
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

// ownsAny reports whether a set of fields contains some of these fields of the status.
func ownsAny(set []byte, fields []string) bool {
	var decoded struct {
		Status map[string]map[string]any `json:"f:status"`
	}
	if json.Unmarshal(set, &decoded) != nil {
		return true // a set that cannot be parsed counts as an owner
	}
	for _, field := range fields {
		if len(decoded.Status["f:"+field]) > 0 {
			return true
		}
	}
	return false
}

// strangers remembers the statuses without our annotations that a field manager of this cluster has written. The zero
// value is ready to use. Safe for concurrent use.
type strangers struct {
	mu     sync.Mutex
	hashes map[Key]string
}

func (s *strangers) knows(key Key, hash string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hashes[key] == hash
}

func (s *strangers) note(key Key, hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hashes == nil {
		s.hashes = map[Key]string{}
	}
	s.hashes[key] = hash
}

func (s *strangers) forget(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hashes, key)
}

// isLostStatus reports whether a virtual kubelet wrote a status whose annotations were removed.
func (r *reflector) isLostStatus(ctx context.Context, local *unstructured.Unstructured, present map[string]any) (bool, error) {
	key, hash := raw.Key(local), r.hashShown(present)
	if r.strangers.knows(key, hash) {
		return false, nil
	}
	by, err := r.statusWriter(ctx, local)
	if err == nil && by != "" {
		r.strangers.note(key, hash)
	}
	return err == nil && by == "", err
}

// knowsCluster reports whether this cluster has a virtual node for a cluster id.
func (m *Manager) knowsCluster(id string) bool {
	for _, cluster := range m.settings.Load().virtualNodes {
		if cluster == id {
			return true
		}
	}
	return false
}

// yield leaves the status to a controller of this cluster that writes it, too. Both would overwrite each other forever.
// Only the user knows which of the two is right, and the Event lists the options.
func (r *reflector) yield(ctx context.Context, w *Worker, local *unstructured.Unstructured, by string) error {
	patch := AddEntries(unchanged(local), "/metadata/annotations", raw.Annotations(local.Object),
		map[string]string{StatusFromAnnotation: r.m.options.LocalClusterID, StatusHashAnnotation: r.hashClass(local)})
	stored, err := r.patchLocal(ctx, local, patch, r.statusSubresource()...)
	if err != nil || stored == nil {
		return err
	}
	w.Result, w.Warned = "written", true
	r.m.events.Warn(r.kind.Name, local, StatusOverruledReason, fmt.Sprintf(
		"a controller of this cluster (field manager %q) updated the status; the status from cluster %s is no longer shown. To show it again, use a class that no controller of this cluster serves, or clear the status",
		by, r.m.options.RemoteClusterID))
	return nil
}

// remark updates the annotations of a status that is already correct: the API server has changed its form, or another
// client has removed the annotations. An empty status needs no annotations.
func (r *reflector) remark(ctx context.Context, local *unstructured.Unstructured, present map[string]any) error {
	have := raw.Annotations(local.Object)
	if r.kind.Status.Fields == nil || r.claimsNothing(present) || have[StatusFromAnnotation] == r.m.options.RemoteClusterID && have[StatusHashAnnotation] == nil {
		return nil
	}
	marks := AddEntries(nil, "/metadata/annotations", have, r.marked(present))
	if len(marks) == 0 {
		return nil
	}
	_, err := r.patchLocal(ctx, local, append(marks, unchanged(local)...), r.statusSubresource()...)
	return err
}
