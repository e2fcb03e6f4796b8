// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// unchanged returns a patch that is refused if the object has changed since the decision to write. Fields that are
// written as a whole may have other writers, too.
func unchanged(object *unstructured.Unstructured) (patch jsonpatch.Patch) {
	patch.Test("/metadata/resourceVersion", object.GetResourceVersion())
	return patch
}

// AddEntries sets entries of a map, which is created if missing. Empty entries are omitted.
func AddEntries(patch jsonpatch.Patch, path string, present map[string]any, entries map[string]string) jsonpatch.Patch {
	maps.DeleteFunc(entries, func(key, value string) bool { return value == "" || present[key] == value })
	if len(entries) > 0 && present == nil {
		patch.Test(path, nil)
		patch.Add(path, entries)
		return patch
	}
	for key, value := range entries {
		patch.Add(path+jsonpatch.Pointer(key), value)
	}
	return patch
}

// patchLocal patches an object of this cluster if its uid is unchanged. It returns nil and no error if the object is
// gone.
func (r *reflector) patchLocal(ctx context.Context, local *unstructured.Unstructured, patch jsonpatch.Patch, subresources ...string) (*unstructured.Unstructured, error) {
	key := raw.Key(local)
	patch.Test("/metadata/uid", string(local.GetUID())) // another object may have got the name
	defer r.writing(r.localWrites, key)()
	stored, err := r.m.patch(ctx, r.kind.Source, r.kind.SourceKind().Kind, key, patch, subresources...)
	if apierrors.IsNotFound(err) {
		return nil, nil // the watch will report it
	}
	if err != nil {
		return nil, err
	}
	r.counted("patch", "local")
	r.localWrites.Wrote(key, local, stored)
	return stored, nil
}

// patch sends a patch for an object of this cluster. kind is for messages. A failed test in the patch is a conflict.
func (m *Manager) patch(ctx context.Context, resource schema.GroupVersionResource, kind string, key Key, patch jsonpatch.Patch, subresources ...string) (*unstructured.Unstructured, error) {
	name := kind + " " + strings.TrimPrefix(key.String(), "/")
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of %s, %w", name, err)
	}
	var stored *unstructured.Unstructured
	err = m.callLocal(ctx, func(ctx context.Context) (err error) {
		stored, err = m.local.Resource(resource).Namespace(key.Namespace).
			Patch(ctx, key.Name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: FieldValidation}, subresources...)
		return err
	})
	switch {
	case jsonpatch.IsOutdated(err):
		return nil, apierrors.NewConflict(resource.GroupResource(), key.Name, err)
	case err != nil:
		return nil, fmt.Errorf("patching %s, %w", name, err)
	}
	return stored, nil
}
