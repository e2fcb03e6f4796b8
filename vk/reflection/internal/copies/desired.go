// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/admitted"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// AppliedHashAnnotation is the annotation with the hash of the applied state. It is set on copies that are written by
// server-side apply, to which the provider's controllers add fields. The hash shows whether the copy may still contain
// fields that were applied earlier and are no longer desired.
const AppliedHashAnnotation = "plugins.refract.io/applied-hash"

// OriginUIDAnnotation is the annotation with the UID of the local object. On ShadowPods and their pods, it identifies
// the local pod. A later pod with the same name, for example of a StatefulSet, is a different pod and must not show the
// termination of the first one. On copies that are written by server-side apply, the annotation shows whether the local
// object was created again, possibly with another value in an immutable field.
const OriginUIDAnnotation = wire.OriginUIDAnnotation

// StandsForAnother reports whether a copy was created for an earlier local object with the same name.
func StandsForAnother(object, local *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	origin, marked := raw.Annotations(object.Object)[OriginUIDAnnotation].(string)
	return marked && origin != string(local.GetUID())
}

// Desired is the desired copy of an object. It is read from the mutated document, and built as an object only if it
// must be written.
type Desired struct {
	c           *Writer
	scope       *Namespace
	Key         queue.Key // key of the local object
	Name        string    // name of the copy
	Namespace   string    // the remote namespace
	root        document.Node
	View        document.View  // view of the document's root
	labels      map[string]any // labels set by the chain, without the labels that the Writer adds
	annotations map[string]any
	Extra       map[string]string // annotations that the engine adds
	local       *unstructured.Unstructured
	// admitted contains the decisions of the provider's admission about desired values. They are recorded in the copy.
	admitted *admitted.Record
	stored   *unstructured.Unstructured // the copy with its whole content, set together with admitted
	// Lesser returns reduced objects. They are tried in this order if the API server rejects the whole object.
	Lesser func() []*unstructured.Unstructured
}

// Desired returns the desired copy that the mutated document contains. It returns a *failure.OutputError if the result
// of a plugin is not a valid object.
func (c *Writer) Desired(w *evaluation.Worker, s *Namespace, local *unstructured.Unstructured) (*Desired, error) {
	root := w.Doc.Root()
	labels, annotations, err := c.checkOutput(root.View())
	if err != nil {
		return nil, err
	}
	return &Desired{
		c: c, scope: s, Key: s.Key(local.GetName()), Name: c.RemoteName(local.GetName()), Namespace: s.Remote,
		root: root, View: root.View(), labels: labels, annotations: annotations, local: local,
	}, nil
}

// CheckOutput returns the *failure.OutputError that Desired would return, or nil if the mutated document contains a
// valid object.
func (c *Writer) CheckOutput(w *evaluation.Worker) error {
	_, _, err := c.checkOutput(w.Doc.Root().View())
	return err
}

func (c *Writer) checkOutput(root document.View) (labels, annotations map[string]any, err error) {
	if payload := root.Field(c.spec.Payload); c.spec.Payload != "" && payload.Kind() != document.Map {
		return nil, nil, &failure.OutputError{Problem: fmt.Sprintf("%s became a %s, want an object", c.spec.Payload, payload.Kind())}
	}
	metadata := root.Field("metadata")
	if labels, err = stringMap(metadata.Field("labels"), "labels"); err != nil {
		return nil, nil, err
	}
	if annotations, err = stringMap(metadata.Field("annotations"), "annotations"); err != nil {
		return nil, nil, err
	}
	return labels, annotations, c.checkRecognized(labels)
}

// checkRecognized returns a *failure.OutputError if the labels would make the copy count as a copy of another kind. The
// reflection of this kind would not find its own copy, and the reflection of the other kind would delete it.
func (c *Writer) checkRecognized(desired map[string]any) error {
	if c.spec.Except == "" {
		return nil
	}
	set := labels.Set{}
	for key, value := range content.Merge(desired, c.added, c.spec.DropLabels) {
		set[key], _ = value.(string)
	}
	if c.selects.Matches(set) {
		return nil
	}
	return &failure.OutputError{Problem: fmt.Sprintf("the labels of the copy do not match %q, by which copies of kind %s are known; remove the label from the object, or exclude the object from reflection", c.spec.Except, c.kind)}
}

// stringMap returns a map in the metadata, such as labels. If no plugin has changed the map, it shares memory with the
// cache.
func stringMap(node document.View, field string) (map[string]any, error) {
	switch node.Kind() {
	case document.Absent, document.Null:
		return nil, nil
	case document.Map:
	default:
		return nil, &failure.OutputError{Problem: fmt.Sprintf("metadata.%s became a %s, want a map of strings", field, node.Kind())}
	}
	values, _ := node.Value().(map[string]any)
	for key, value := range values {
		if _, ok := value.(string); !ok {
			return nil, &failure.OutputError{Problem: fmt.Sprintf("metadata.%s[%s] became %v, want a string", field, key, value)}
		}
	}
	return values, nil
}

// payloadKeys returns the names of the fields of the mutated object that are reflected: all except apiVersion, kind,
// metadata and status.
func (x *Desired) payloadKeys(w *evaluation.Worker) []string {
	w.Keys = x.View.Keys(w.Keys[:0])
	return slices.DeleteFunc(w.Keys, content.IsOwn)
}

// payload returns the fields that are reflected. The result may share memory with the cache, but not with the
// document.
func (x *Desired) payload(w *evaluation.Worker) map[string]any {
	if x.c.spec.Payload != "" {
		value, _ := x.View.Field(x.c.spec.Payload).Value().(map[string]any)
		return value
	}
	fields := map[string]any{}
	for _, key := range x.payloadKeys(w) {
		if value := x.View.Field(key).Value(); value != nil {
			fields[strings.Clone(key)] = value
		}
	}
	return fields
}

// Build returns the desired copy as an object. remote is the existing copy, or nil.
func (x *Desired) Build(w *evaluation.Worker, remote *unstructured.Unstructured) *unstructured.Unstructured {
	spec := &x.c.spec
	object := map[string]any{}
	if spec.Payload != "" || len(spec.Into) > 0 {
		content.Set(object, spec.Into, x.payload(w))
	} else {
		object = x.payload(w)
	}
	object["apiVersion"], object["kind"] = x.View.Field("apiVersion").Value(), x.View.Field("kind").Value()
	if spec.GVK.Kind != "" {
		object["apiVersion"], object["kind"] = spec.GVK.GroupVersion().String(), spec.GVK.Kind
	}
	object["metadata"] = x.Metadata(w, remote)
	return &unstructured.Unstructured{Object: object}
}

// Metadata returns the metadata to write. For a write that replaces the copy, it contains the resourceVersion and the
// existing fields of other managers (finalizers and owners). For an apply, it contains only the desired fields and a
// precondition: the UID of the copy, or that no object exists. With the precondition, the apply cannot change another
// object with the same name.
func (x *Desired) Metadata(w *evaluation.Worker, remote *unstructured.Unstructured) map[string]any {
	spec := &x.c.spec
	labels, annotations := content.Merge(x.labels, x.c.added, spec.DropLabels), content.Merge(x.annotations, x.Extra, spec.DropAnnotations)
	if record := x.admitted.Text(); record != "" {
		annotations[admitted.Annotation] = record
	}
	metadata := map[string]any{}
	if spec.Mode == Apply {
		annotations[AppliedHashAnnotation] = x.hashText(w)
		if remote != nil {
			metadata["uid"] = string(remote.GetUID())
		} else {
			metadata["resourceVersion"] = neverStored
		}
	} else if remote != nil {
		present, _ := remote.Object["metadata"].(map[string]any)
		metadata = maps.Clone(present)
		for _, key := range spec.KeepLabels {
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
