// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package apistub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/yaml"
)

// store stores an object with a new resourceVersion.
func (s *Server) store(k key, object *unstructured.Unstructured) {
	s.version++
	object.SetResourceVersion(strconv.Itoa(s.version))
	if object.GetUID() == "" {
		object.SetUID(uuid.NewUUID())
	}
	if created := object.GetCreationTimestamp(); created.IsZero() {
		object.SetCreationTimestamp(metav1.NewTime(time.Now()))
	}
	s.record(k, s.objects[k], object)
	s.objects[k] = object
}

// erase deletes an object. If the object is a namespace, its contents are deleted, too.
func (s *Server) erase(k key) {
	s.forget(k)
	if k.Group != "" || k.Resource != "namespaces" {
		return
	}
	for other := range s.objects {
		if other.namespace == k.name {
			s.forget(other)
		}
	}
}

// forget deletes an object, but not the contents of a namespace. The object need not exist.
func (s *Server) forget(k key) {
	if live := s.objects[k]; live != nil {
		s.version++
		s.record(k, live, nil)
		delete(s.objects, k)
	}
}

// write executes a write, and returns the object after the write.
func (s *Server) write(r Request, k key, contentType, manager string, force bool, body []byte) (*unstructured.Unstructured, *metav1.Status) {
	live := s.objects[k]
	switch {
	case r.Verb == "create" && live != nil:
		return nil, statusOf(http.StatusConflict, metav1.StatusReasonAlreadyExists, k)
	case r.Verb != "create" && live == nil && contentType != string(types.ApplyYAMLPatchType):
		return nil, statusOf(http.StatusNotFound, metav1.StatusReasonNotFound, k)
	case k.namespace != "" && s.objects[key{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", k.namespace}] == nil:
		return nil, statusOf(http.StatusNotFound, metav1.StatusReasonNotFound, key{schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", k.namespace})
	case r.Verb == "delete":
		options := &metav1.DeleteOptions{}
		if len(body) > 0 && json.Unmarshal(body, options) == nil && options.Preconditions != nil && options.Preconditions.UID != nil && *options.Preconditions.UID != live.GetUID() {
			return nil, statusOf(http.StatusConflict, metav1.StatusReasonConflict, k)
		}
		s.delete(k, live, options)
		if ending := s.objects[k]; ending != nil {
			return ending, nil
		}
		return live, nil
	}
	changed, status := s.change(r, k, live, contentType, manager, force, body)
	if status != nil {
		return nil, status
	}
	if s.admit != nil {
		if refusal := s.admit(changed); refusal != nil {
			return nil, Refuse(refusal).Status
		}
	}
	changed.SetGeneration(1)
	if live != nil {
		changed.SetGeneration(live.GetGeneration())
		if !reflect.DeepEqual(live.Object["spec"], changed.Object["spec"]) {
			changed.SetGeneration(live.GetGeneration() + 1)
		}
	}
	s.store(k, changed)
	if changed.GetDeletionTimestamp() != nil && len(changed.GetFinalizers()) == 0 {
		s.erase(k)
	}
	return changed, nil
}

// delete deletes an object. If the object has finalizers, it only marks the object as being deleted.
func (s *Server) delete(k key, live *unstructured.Unstructured, options *metav1.DeleteOptions) {
	if len(live.GetFinalizers()) == 0 {
		s.erase(k)
		return
	}
	live = live.DeepCopy() // the old object must not be modified, because watches report it
	now := metav1.NewTime(time.Now())
	live.SetDeletionTimestamp(&now)
	grace := options.GracePeriodSeconds
	if grace == nil {
		grace = new(int64)
	}
	live.SetDeletionGracePeriodSeconds(grace)
	s.store(k, live)
}

// change returns the object as the requested write would change it. live is nil for a new object.
func (s *Server) change(r Request, k key, live *unstructured.Unstructured, contentType, manager string, force bool, body []byte) (*unstructured.Unstructured, *metav1.Status) {
	sent := &unstructured.Unstructured{Object: map[string]any{}}
	if contentType != string(types.JSONPatchType) {
		if err := decode(body, sent); err != nil {
			return nil, statusOf(http.StatusBadRequest, metav1.StatusReasonBadRequest, k)
		}
	}
	before := live
	if before == nil {
		before = &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.GroupVersion().String(), "kind": s.resources[k.GroupVersionResource].kind,
			"metadata": map[string]any{"name": k.name}}}
		if k.namespace != "" {
			before.SetNamespace(k.namespace)
		}
	}
	if version := sent.GetResourceVersion(); live != nil && version != "" && version != live.GetResourceVersion() {
		return nil, statusOf(http.StatusConflict, metav1.StatusReasonConflict, k)
	}
	if uid := sent.GetUID(); r.Verb != "create" && uid != "" && (live == nil || uid != live.GetUID()) {
		return nil, statusOf(http.StatusConflict, metav1.StatusReasonConflict, k)
	}
	sent.SetResourceVersion("")
	fields, err := s.fieldManager(k, r.Subresource)
	if err != nil {
		return nil, statusOf(http.StatusInternalServerError, metav1.StatusReasonInternalError, k)
	}
	if contentType == string(types.ApplyYAMLPatchType) {
		applied, err := fields.Apply(before.DeepCopy(), sent, manager, force)
		if err != nil {
			return nil, statusOf(http.StatusConflict, metav1.StatusReasonConflict, k)
		}
		return applied.(*unstructured.Unstructured), nil
	}
	after := sent
	if r.Verb == "patch" {
		if after, err = patched(before, contentType, body); err != nil {
			return nil, statusOf(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, k)
		}
	}
	after.SetName(k.name)
	after.SetNamespace(k.namespace)
	after.SetUID(before.GetUID())
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	return fields.UpdateNoErrors(before.DeepCopy(), after, manager).(*unstructured.Unstructured), nil
}

// decode decodes an object from JSON or YAML. Whole numbers are decoded as integers.
func decode(body []byte, into *unstructured.Unstructured) error {
	text, err := yaml.YAMLToJSON(body)
	if err != nil {
		return fmt.Errorf("decoding the object, %w", err)
	}
	return utiljson.Unmarshal(text, &into.Object)
}

// patched applies a JSON patch or a merge patch to an object, and returns the result.
func patched(before *unstructured.Unstructured, contentType string, patch []byte) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(before.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object, %w", err)
	}
	if contentType == string(types.JSONPatchType) {
		var steps jsonpatch.Patch
		if steps, err = jsonpatch.DecodePatch(patch); err == nil {
			text, err = steps.Apply(text)
		}
	} else {
		text, err = jsonpatch.MergePatch(text, patch)
	}
	if err != nil {
		return nil, fmt.Errorf("patching the object, %w", err)
	}
	after := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(text, &after.Object); err != nil {
		return nil, fmt.Errorf("decoding the patched object, %w", err)
	}
	return after, nil
}

// fieldManager returns the implementation of server-side apply for a kind. It treats lists as atomic, like an API
// server for a CRD without a schema.
func (s *Server) fieldManager(k key, subresource string) (*managedfields.FieldManager, error) {
	kind := k.GroupVersion().WithKind(s.resources[k.GroupVersionResource].kind)
	return managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), converter{}, converter{}, converter{}, kind, kind.GroupVersion(), subresource, nil)
}

// converter implements conversion for server-side apply. It returns objects unchanged, because each kind has only one
// version.
type converter struct{}

func (converter) Convert(in, out, _ any) error {
	out.(*unstructured.Unstructured).Object = in.(*unstructured.Unstructured).Object
	return nil
}

func (converter) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (converter) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (converter) Default(runtime.Object) {}

func (converter) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object, nil
}
