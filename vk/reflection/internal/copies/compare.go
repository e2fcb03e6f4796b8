// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/admitted"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// same reports whether the copy is up to date. A copy that only the virtual kubelet writes must have exactly the
// desired state. Other copies may have additional fields that the provider's controllers have set.
func (x *Desired) same(w *evaluation.Worker, remote *unstructured.Unstructured) bool {
	spec := &x.c.spec
	if record := x.c.recordOf(remote); record != nil {
		return x.sameAdmitted(w, remote, record)
	}
	if spec.Mode == Replace {
		return x.SameMetadata(remote) && x.samePayload(w, remote, true)
	}
	return covers(x.labels, x.c.added, spec.DropLabels, raw.Labels(remote.Object)) &&
		covers(x.annotations, x.Extra, spec.DropAnnotations, raw.Annotations(remote.Object)) &&
		x.samePayload(w, remote, false) &&
		raw.Annotations(remote.Object)[AppliedHashAnnotation] == x.hashText(w)
}

// SameMetadata reports whether a copy that only the virtual kubelet writes has the desired labels and annotations,
// including the decisions of the provider's admission about them.
func (x *Desired) SameMetadata(remote *unstructured.Unstructured) bool {
	spec := &x.c.spec
	if record := x.c.recordOf(remote); record != nil {
		return x.sameAdmittedMetadata(remote, record)
	}
	return equals(x.labels, x.c.added, spec.DropLabels, spec.KeepLabels, raw.Labels(remote.Object)) &&
		equals(x.annotations, x.Extra, spec.DropAnnotations, nil, raw.Annotations(remote.Object))
}

// covers reports whether the map have contains every entry of base and added, and no key of dropped. If a key is in
// both base and added, its value must be the value in added.
func covers(base map[string]any, added map[string]string, dropped []string, have map[string]any) bool {
	_, ok := count(base, added, dropped, nil, have)
	return ok
}

func (x *Desired) sameAdmittedMetadata(remote *unstructured.Unstructured, record *admitted.Record) bool {
	spec := &x.c.spec
	labels, annotations := content.Merge(x.labels, x.c.added, spec.DropLabels), content.Merge(x.annotations, x.Extra, spec.DropAnnotations)
	present := raw.Labels(remote.Object)
	for _, key := range spec.KeepLabels {
		if value, ok := present[key]; ok {
			labels[key] = value
		}
	}
	annotations[admitted.Annotation] = raw.Annotations(remote.Object)[admitted.Annotation]
	record.Apply(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}}, remote.Object)
	return raw.Equal(labels, present) && raw.Equal(annotations, raw.Annotations(remote.Object))
}

// equals reports whether covers returns true and all other keys of the map have are in kept.
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

// samePayload reports whether the copy has the desired payload. It compares the payload field by field. A null field
// counts as absent.
func (x *Desired) samePayload(w *evaluation.Worker, remote *unstructured.Unstructured, exact bool) bool {
	if digest, trimmed := content.DigestOf(remote); trimmed {
		return digest == x.contentHash(w)
	}
	spec := &x.c.spec
	have := raw.Map(raw.Nested(remote.Object, spec.Into...))
	if spec.Payload != "" {
		return x.sameField(spec.Payload, have, exact)
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
		if value == nil || len(spec.Into) == 0 && content.IsOwn(key) {
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

// hash returns a hash of the desired state. The hash is stored in an annotation, so it must not depend on the order of
// keys or on the process.
func (x *Desired) hash(w *evaluation.Worker) uint64 {
	sum := x.metadataHash()
	if x.c.spec.Payload != "" {
		return sum + x.View.Field(x.c.spec.Payload).Hash()
	}
	for _, key := range x.payloadKeys(w) {
		if field := x.View.Field(key); field.Exists() {
			sum += content.FieldHash(key, field)
		}
	}
	return sum
}

func (x *Desired) metadataHash() uint64 {
	return content.MetadataHash(content.Merge(x.labels, x.c.added, x.c.spec.DropLabels), content.Merge(x.annotations, x.Extra, x.c.spec.DropAnnotations))
}

// stored returns the hash of an object as the provider has stored it.
func (c *Writer) stored(remote *unstructured.Unstructured) uint64 {
	return content.Hash(remote, c.spec.Into)
}

// hashText returns the desired value of the annotation AppliedHashAnnotation.
func (x *Desired) hashText(w *evaluation.Worker) string {
	if x.c.spec.FixedSpec {
		return strconv.FormatUint(x.metadataHash(), 36)
	}
	return strconv.FormatUint(x.hash(w), 36)
}

// contentHash returns the hash of the content of the copy.
func (x *Desired) contentHash(w *evaluation.Worker) (sum uint64) {
	if payload := x.c.spec.Payload; payload != "" {
		view := x.View.Field(payload)
		w.Keys = view.Keys(w.Keys[:0])
		for _, key := range w.Keys {
			if field := view.Field(key); field.Kind() != document.Null {
				sum += content.FieldHash(key, field)
			}
		}
		return sum
	}
	for _, key := range x.payloadKeys(w) {
		if field := x.View.Field(key); field.Kind() != document.Null {
			sum += content.FieldHash(key, field)
		}
	}
	return sum
}
