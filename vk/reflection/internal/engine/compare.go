// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/admitted"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// same reports whether the copy already has the desired state: exactly this state if the copy is wholly ours, at least
// this state if the provider's controllers write to it too.
func (x *Desired) same(w *Worker, remote *unstructured.Unstructured) bool {
	kind := &x.r.kind
	if record := x.r.recordOf(remote); record != nil {
		return x.sameAdmitted(w, remote, record)
	}
	if kind.Copy.Mode == Replace {
		return x.SameMetadata(remote) && x.samePayload(w, remote, true)
	}
	return covers(x.labels, x.r.added, kind.Copy.DropLabels, raw.Labels(remote.Object)) &&
		covers(x.annotations, x.Extra, kind.Copy.DropAnnotations, raw.Annotations(remote.Object)) &&
		x.samePayload(w, remote, false) &&
		raw.Annotations(remote.Object)[AppliedHashAnnotation] == x.hashText(w)
}

// SameMetadata reports whether a copy that is wholly ours has the desired labels and annotations, with the decisions of
// the provider's admission about them.
func (x *Desired) SameMetadata(remote *unstructured.Unstructured) bool {
	kind := &x.r.kind
	if record := x.r.recordOf(remote); record != nil {
		return x.sameAdmittedMetadata(remote, record)
	}
	return equals(x.labels, x.r.added, kind.Copy.DropLabels, kind.Copy.KeepLabels, raw.Labels(remote.Object)) &&
		equals(x.annotations, x.Extra, kind.Copy.DropAnnotations, nil, raw.Annotations(remote.Object))
}

// covers reports whether have contains every entry of base and added. added takes precedence; dropped keys must be
// absent.
func covers(base map[string]any, added map[string]string, dropped []string, have map[string]any) bool {
	_, ok := count(base, added, dropped, nil, have)
	return ok
}

func (x *Desired) sameAdmittedMetadata(remote *unstructured.Unstructured, record *admitted.Record) bool {
	kind := &x.r.kind
	labels, annotations := merge(x.labels, x.r.added, kind.Copy.DropLabels), merge(x.annotations, x.Extra, kind.Copy.DropAnnotations)
	present := raw.Labels(remote.Object)
	for _, key := range kind.Copy.KeepLabels {
		if value, ok := present[key]; ok {
			labels[key] = value
		}
	}
	annotations[admitted.Annotation] = raw.Annotations(remote.Object)[admitted.Annotation]
	record.Apply(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}}, remote.Object)
	return raw.Equal(labels, present) && raw.Equal(annotations, raw.Annotations(remote.Object))
}

// equals reports whether covers is true and have contains no other keys than the kept ones.
func equals(base map[string]any, added map[string]string, dropped, kept []string, have map[string]any) bool {
	n, ok := count(base, added, dropped, kept, have)
	if !ok {
		return false
	}
	for _, key := range kept {
		if _, present := have[key]; present {
			n++
		}
	}
	return n == len(have)
}

func count(base map[string]any, added map[string]string, dropped, kept []string, have map[string]any) (n int, ok bool) {
	for key, value := range base {
		if _, ours := added[key]; ours || slices.Contains(dropped, key) || slices.Contains(kept, key) {
			continue
		}
		if have[key] != value {
			return n, false
		}
		n++
	}
	for key, value := range added {
		if have[key] != value {
			return n, false
		}
		n++
	}
	return n, true
}

// samePayload compares the payload field by field. A null field counts as absent.
func (x *Desired) samePayload(w *Worker, remote *unstructured.Unstructured, exact bool) bool {
	if digest, trimmed := digestOf(remote); trimmed {
		return digest == x.contentHash(w)
	}
	kind := &x.r.kind
	have := raw.Map(raw.Nested(remote.Object, kind.Copy.Into...))
	if kind.Copy.Payload != "" {
		return x.sameField(kind.Copy.Payload, have, exact)
	}
	n := 0
	for _, key := range x.payloadKeys(w) {
		if x.View.Field(key).Kind() == document.Null {
			continue
		}
		if value, present := have[key]; !present || !x.sameField(key, value, exact) {
			return false
		}
		n++
	}
	for key, value := range have {
		if value == nil || len(kind.Copy.Into) == 0 && isOwn(key) {
			n++
		}
	}
	return !exact || n == len(have)
}

func (x *Desired) sameField(key string, have any, exact bool) bool {
	if exact {
		return x.View.Field(key).Equal(document.Of(have))
	}
	field, err := x.root.Field(key)
	return err == nil && document.Covers(field, have)
}

// hash distinguishes states of the copy. It depends neither on the order of keys nor on the process, because it is
// stored in an annotation.
func (x *Desired) hash(w *Worker) uint64 {
	sum := x.metadataHash()
	if x.r.kind.Copy.Payload != "" {
		return sum + x.View.Field(x.r.kind.Copy.Payload).Hash()
	}
	for _, key := range x.payloadKeys(w) {
		if field := x.View.Field(key); field.Exists() {
			sum += FieldHash(key, field)
		}
	}
	return sum
}

func (x *Desired) metadataHash() uint64 {
	return metadataHash(merge(x.labels, x.r.added, x.r.kind.Copy.DropLabels), merge(x.annotations, x.Extra, x.r.kind.Copy.DropAnnotations))
}

// stored returns the hash of an object as the provider has stored it.
func (r *reflector) stored(remote *unstructured.Unstructured) uint64 {
	return ContentHash(remote, r.kind.Copy.Into)
}

// ContentHash returns the hash of the labels, the annotations and the fields below the path. An empty path selects the
// reflected fields.
func ContentHash(object *unstructured.Unstructured, path []string) uint64 {
	return metadataHash(raw.Labels(object.Object), raw.Annotations(object.Object)) + fieldsHash(object, path)
}

// fieldsHash returns the hash of ContentHash without labels and annotations.
func fieldsHash(object *unstructured.Unstructured, path []string) (sum uint64) {
	if digest, trimmed := digestOf(object); trimmed {
		return digest
	}
	fields, _ := raw.Nested(object.Object, path...).(map[string]any)
	for key, value := range fields {
		if len(path) > 0 || !isOwn(key) {
			sum += FieldHash(key, document.Of(value))
		}
	}
	return sum
}

func metadataHash(labels, annotations map[string]any) uint64 {
	return FieldHash("labels", document.Of(labels)) + FieldHash("annotations", document.Of(annotations))
}

// FieldHash mixes a key with a value, so that a sum of field hashes distinguishes which value belongs to which key.
func FieldHash(key string, value document.View) uint64 {
	mixed := (document.Hash(key) ^ value.Hash()) * 0x9e3779b97f4a7c15
	return mixed ^ mixed>>32
}

// hashText returns the desired value of AppliedHashAnnotation.
func (x *Desired) hashText(w *Worker) string {
	if x.r.kind.Copy.FixedSpec {
		return strconv.FormatUint(x.metadataHash(), 36)
	}
	return strconv.FormatUint(x.hash(w), 36)
}
