// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/api/wire"
)

// operation of a JSON patch (RFC 6902), which can test what it is based on, and write status and metadata at once.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is a key as a segment of the path of an operation.
func pointer(key string) string { return pointerEscapes.Replace(key) }

// sameObject has a patch refused when another object has got the name.
func sameObject(object *unstructured.Unstructured) operation {
	return operation{"test", "/metadata/uid", string(object.GetUID())}
}

// unchanged has a patch refused when the object is not as it was decided on: others may write what is written whole, too.
func unchanged(object *unstructured.Unstructured) operation {
	return operation{"test", "/metadata/resourceVersion", object.GetResourceVersion()}
}

// addEntries sets entries of a map, which is made when there is still none; empty ones are left out.
func addEntries(patch []operation, path string, present map[string]any, entries map[string]string) []operation {
	maps.DeleteFunc(entries, func(key, value string) bool { return value == "" || present[key] == value })
	if len(entries) > 0 && present == nil {
		return append(patch, operation{"test", path, nil}, operation{"add", path, entries})
	}
	for key, value := range entries {
		patch = append(patch, operation{"add", path + "/" + pointer(key), value})
	}
	return patch
}

// patchLocal patches an object of this cluster if it is still the same one; nil without an error when it is gone.
func (r *reflector) patchLocal(ctx context.Context, local *unstructured.Unstructured, patch []operation, subresources ...string) (*unstructured.Unstructured, error) {
	key := keyOf(local)
	defer r.writing(r.localWrites, key)()
	stored, err := r.m.patch(ctx, r.kind.Source, key, append(patch, sameObject(local)), subresources...)
	if apierrors.IsNotFound(err) {
		return nil, nil // the watch will say so
	}
	if err != nil {
		return nil, err
	}
	r.counted("patch", "local")
	r.localWrites.Wrote(key, local, stored)
	return stored, nil
}

// patch sends a patch for an object of this cluster. A test in it that fails is a conflict.
func (m *Manager) patch(ctx context.Context, resource schema.GroupVersionResource, key Key, patch []operation, subresources ...string) (*unstructured.Unstructured, error) {
	name := resource.Resource + " " + strings.TrimPrefix(key.String(), "/")
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of %s, %w", name, err)
	}
	var stored *unstructured.Unstructured
	err = m.callLocal(ctx, func(ctx context.Context) (err error) {
		stored, err = m.local.Resource(resource).Namespace(key.Namespace).
			Patch(ctx, key.Name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: fieldValidation}, subresources...)
		return err
	})
	switch {
	case outdated(err):
		return nil, apierrors.NewConflict(resource.GroupResource(), key.Name, err)
	case err != nil:
		return nil, fmt.Errorf("patching %s, %w", name, err)
	}
	_, _ = dropManagedFields(stored)
	return stored, nil
}

// outdated tells the refusal of a patch that does not fit the object any more (another one bears its name, its labels are
// gone) from that of a content which is not valid: the latter names the fields.
func outdated(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}
