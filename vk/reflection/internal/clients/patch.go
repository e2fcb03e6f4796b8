// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package clients

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
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// Unchanged returns the beginning of a patch: a test that makes the API server reject the patch if the object has
// changed since it was read. It is needed if the patch replaces a whole field to which several clients write.
func Unchanged(object *unstructured.Unstructured) (patch jsonpatch.Patch) {
	patch.Test("/metadata/resourceVersion", object.GetResourceVersion())
	return patch
}

// AddEntries adds operations to a patch that set entries of a map. If necessary, they create the map. Entries that have
// an empty value or are already present are omitted, and removed from entries.
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

// PatchLocal sends a patch for an object of this cluster. kind is the name of the object's kind in messages. If a test
// in the patch fails, PatchLocal returns a conflict.
func (c *Clients) PatchLocal(ctx context.Context, resource schema.GroupVersionResource, kind string, key cache.ObjectName, patch jsonpatch.Patch, subresources ...string) (*unstructured.Unstructured, error) {
	name := kind + " " + strings.TrimPrefix(key.String(), "/")
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of %s, %w", name, err)
	}
	var stored *unstructured.Unstructured
	err = c.CallLocal(ctx, func(ctx context.Context) (err error) {
		stored, err = c.Local.Resource(resource).Namespace(key.Namespace).
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
