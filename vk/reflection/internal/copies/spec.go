// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mode selects how copies are written on the provider.
type Mode int

const (
	// Apply is server-side apply. It is used for kinds whose copies get additional fields from the provider's
	// controllers.
	Apply Mode = iota
	// Replace is create and update. It is used for kinds that only the virtual kubelet writes, such as ShadowPod.
	Replace
)

// Spec describes how the copy of an object is stored on the provider. The zero value means an object of the same kind
// with the whole content, written by server-side apply.
type Spec struct {
	GVR  schema.GroupVersionResource // if it is empty, the GVR of the source
	GVK  schema.GroupVersionKind     // if it is empty, the GVK of the source
	Mode Mode

	// Payload is the only field of the mutated object that is reflected. If it is empty, all fields except
	// apiVersion, kind, metadata and status are reflected.
	Payload string
	// Into is the path in the copy below which the payload is stored. If it is empty, the payload is stored at the
	// same path as in the object.
	Into []string
	// FixedSpec means that writes cannot remove fields of the spec. They can only set other values, which the API
	// server may reject. Therefore, only labels and annotations are checked for entries that are no longer desired.
	FixedSpec bool

	// Labels are set on the copy in addition to the labels for origin and destination.
	Labels map[string]string
	// DropLabels are labels that are never reflected, in addition to wire.Bookkeeping.
	DropLabels []string
	// DropAnnotations are annotations that are never reflected, in addition to wire.Bookkeeping.
	DropAnnotations []string
	// Annotations returns annotations of the copy of an object, which neither users nor plugins can set. It must not modify the object.
	// Their keys are in DropAnnotations. If Annotations is nil, there are none. It is called for copies that are written by Base only.
	Annotations func(object *unstructured.Unstructured) map[string]string
	// KeepLabels are labels that the provider's admission sets on copies. Reflection does not remove them.
	KeepLabels []string

	// Changeable returns the part of the content that is updated in an existing copy. All other content stays as the
	// provider's admission has decided. If Changeable is nil, the whole content is updated.
	Changeable func(content map[string]any) map[string]any

	// Lesser returns reduced objects. They are tried in this order if the API server rejects the whole object. remote
	// is the existing copy, or nil for a new one. Lesser must not modify its arguments. If Lesser is nil, no reduced
	// objects are tried.
	Lesser func(object, remote *unstructured.Unstructured) []*unstructured.Unstructured
	// LesserEffect describes the consequence of sending a reduced object. It is the end of an Event's message, after
	// "the rest was applied".
	LesserEffect string

	// Suffix is appended to the names of all copies.
	Suffix string
	// Rename returns the names of copies whose names differ from the names of their objects. If it is nil, every copy
	// has the name of its object.
	Rename func(localClusterID string) map[string]string
	// Except is an additional label selector that a copy must match.
	Except string
}
