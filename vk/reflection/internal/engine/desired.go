// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/admitted"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// AppliedHashAnnotation, on copies that are applied, is the hash of the applied state. The provider's controllers add
// fields to such copies; the hash shows that a field we applied earlier is no longer desired.
const AppliedHashAnnotation = "plugins.refract.io/applied-hash"

// OriginUIDAnnotation, on ShadowPods and their pods, is the uid of the pod they represent. A later pod of the same name
// (of a StatefulSet, for example) is a different pod, and must not be shown the termination of the first one. On
// applied copies, the uid shows whether an object was recreated, possibly with another value in an immutable field.
const OriginUIDAnnotation = wire.OriginUIDAnnotation

// StandsForAnother reports whether a copy was created for an earlier object of the same name.
func StandsForAnother(object, local *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	origin, marked := raw.Annotations(object.Object)[OriginUIDAnnotation].(string)
	return marked && origin != string(local.GetUID())
}

// Desired is the desired copy of an object, read from a mutated document without materializing it.
type Desired struct {
	r           *reflector
	scope       *Scope
	Key         Key    // key of the object
	Name        string // name of the copy
	Namespace   string // the remote namespace
	root        document.Node
	View        document.View  // view of root
	labels      map[string]any // labels set by the chain, without the labels that the reflector adds
	annotations map[string]any
	Extra       map[string]string // annotations of the engine
	local       *unstructured.Unstructured
	// admitted has the desired values that the provider's admission has replaced. They are recorded in the copy.
	admitted *admitted.Record
	stored   *unstructured.Unstructured // the whole copy, set together with admitted
	// Lesser lists what an API server may accept that refuses the whole, in the order in which it is tried.
	Lesser func() []*unstructured.Unstructured
}

// desired reads the mutated object. It returns an *OutputError if the result of a plugin is not a valid object.
func (r *reflector) desired(w *Worker, s *Scope, local *unstructured.Unstructured) (*Desired, error) {
	root := w.Doc.Root()
	if payload := root.View().Field(r.kind.Copy.Payload); r.kind.Copy.Payload != "" && payload.Kind() != document.Map {
		return nil, &OutputError{fmt.Sprintf("%s became a %s, want an object", r.kind.Copy.Payload, payload.Kind())}
	}
	metadata := root.View().Field("metadata")
	labels, err := stringMap(metadata.Field("labels"), "labels")
	if err != nil {
		return nil, err
	}
	annotations, err := stringMap(metadata.Field("annotations"), "annotations")
	if err != nil {
		return nil, err
	}
	if err := r.checkRecognized(labels); err != nil {
		return nil, err
	}
	return &Desired{
		r: r, scope: s, Key: s.Key(local.GetName()), Name: r.remoteName(local.GetName()), Namespace: s.namespace.remote,
		root: root, View: root.View(), labels: labels, annotations: annotations, local: local,
	}, nil
}

// checkRecognized returns an *OutputError if a copy with these labels would be taken for a copy of another kind. This
// kind would not see its own copy, and the other kind would delete it.
func (r *reflector) checkRecognized(desired map[string]any) error {
	if r.kind.Copy.Except == "" {
		return nil
	}
	set := labels.Set{}
	for key, value := range merge(desired, r.added, r.kind.Copy.DropLabels) {
		set[key], _ = value.(string)
	}
	if r.selects.Matches(set) {
		return nil
	}
	return &OutputError{fmt.Sprintf("the labels of the copy do not match %q, by which copies of kind %s are known; remove the label from the object, or exclude the object from reflection", r.kind.Copy.Except, r.kind.Name)}
}

// stringMap returns a map of the metadata. The map is shared with the cache if no plugin changed it.
func stringMap(node document.View, field string) (map[string]any, error) {
	switch node.Kind() {
	case document.Absent, document.Null:
		return nil, nil
	case document.Map:
	default:
		return nil, &OutputError{fmt.Sprintf("metadata.%s became a %s, want a map of strings", field, node.Kind())}
	}
	values, _ := node.Value().(map[string]any)
	for key, value := range values {
		if _, ok := value.(string); !ok {
			return nil, &OutputError{fmt.Sprintf("metadata.%s[%s] became %v, want a string", field, key, value)}
		}
	}
	return values, nil
}

// payloadKeys lists the fields of the mutated object that are carried over: all except apiVersion, kind, metadata and
// status.
func (x *Desired) payloadKeys(w *Worker) []string {
	w.keys = x.View.Keys(w.keys[:0])
	return slices.DeleteFunc(w.keys, isOwn)
}

// isOwn reports whether a field is not carried over because each cluster has its own value of it.
func isOwn(key string) bool {
	return key == "apiVersion" || key == "kind" || key == "metadata" || key == "status"
}

// payload materializes the fields that are carried over.
func (x *Desired) payload(w *Worker) map[string]any {
	if x.r.kind.Copy.Payload != "" {
		value, _ := x.View.Field(x.r.kind.Copy.Payload).Value().(map[string]any)
		return value
	}
	fields := map[string]any{}
	for _, key := range x.payloadKeys(w) {
		if value := x.View.Field(key).Value(); value != nil {
			fields[key] = value
		}
	}
	return fields
}

// merge returns base with the added entries and without the dropped keys.
func merge(base map[string]any, added map[string]string, dropped []string) map[string]any {
	merged := make(map[string]any, len(base)+len(added))
	maps.Copy(merged, base)
	for _, key := range dropped {
		delete(merged, key)
	}
	for key, value := range added {
		merged[key] = value
	}
	return merged
}

// Build materializes the copy. remote is the present copy, or nil.
func (x *Desired) Build(w *Worker, remote *unstructured.Unstructured) *unstructured.Unstructured {
	kind := &x.r.kind
	object := map[string]any{}
	if kind.Copy.Payload != "" || len(kind.Copy.Into) > 0 {
		set(object, kind.Copy.Into, x.payload(w))
	} else {
		object = x.payload(w)
	}
	object["apiVersion"], object["kind"] = x.View.Field("apiVersion").Value(), x.View.Field("kind").Value()
	if kind.Copy.GVK.Kind != "" {
		object["apiVersion"], object["kind"] = kind.Copy.GVK.GroupVersion().String(), kind.Copy.GVK.Kind
	}
	object["metadata"] = x.Metadata(w, remote)
	return &unstructured.Unstructured{Object: object}
}

func set(object map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		below := map[string]any{}
		object[key] = below
		object = below
	}
	object[path[len(path)-1]] = value
}

// Metadata returns the metadata to write. For a replacing write, it keeps fields of other managers (finalizers, owners,
// the resourceVersion). For an apply, it has only the desired fields and the uid, or requires that no object exists, so
// that the apply cannot change another object of the same name.
func (x *Desired) Metadata(w *Worker, remote *unstructured.Unstructured) map[string]any {
	kind := &x.r.kind
	labels, annotations := merge(x.labels, x.r.added, kind.Copy.DropLabels), merge(x.annotations, x.Extra, kind.Copy.DropAnnotations)
	if record := x.admitted.Text(); record != "" {
		annotations[admitted.Annotation] = record
	}
	metadata := map[string]any{}
	if kind.Copy.Mode == Apply {
		annotations[AppliedHashAnnotation] = x.hashText(w)
		if remote != nil {
			metadata["uid"] = string(remote.GetUID())
		} else {
			metadata["resourceVersion"] = neverStored
		}
	} else if remote != nil {
		present, _ := remote.Object["metadata"].(map[string]any)
		metadata = maps.Clone(present)
		for _, key := range kind.Copy.KeepLabels {
			if value, ok := raw.Labels(remote.Object)[key]; ok {
				labels[key] = value
			}
		}
	}
	metadata["name"], metadata["namespace"], metadata["labels"] = x.Name, x.Namespace, labels
	delete(metadata, "annotations")
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return metadata
}
