// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
)

// withImmutable returns the object with the copy's values in the immutable fields that the rejection lists, so that all
// other changes can be written. It returns nil if the rejection is about a field inside a list or in the metadata, or
// about the copy as a whole.
func withImmutable(object, remote *unstructured.Unstructured, refusal error) *unstructured.Unstructured {
	object = object.DeepCopy() // a deep copy, because object shares memory with the cache
	for _, cause := range failure.CausesOf(refusal) {
		path := strings.Split(cause.Field, ".")
		if cause.Field == "" || strings.Contains(cause.Field, "[") || path[0] == "metadata" {
			return nil
		}
		value, present, err := unstructured.NestedFieldCopy(remote.Object, path...)
		if present && err == nil {
			err = unstructured.SetNestedField(object.Object, value, path...)
		} else if err == nil {
			unstructured.RemoveNestedField(object.Object, path...)
		}
		if err != nil {
			return nil
		}
	}
	return object
}

// warnImmutable warns about the immutable fields of the copy that were not updated, and describes the remedy.
func (c *Writer) warnImmutable(w *evaluation.Worker, x *Desired, refusal error) {
	var fields []string
	for _, cause := range failure.CausesOf(refusal) {
		fields = append(fields, cause.Field+" ("+cause.Message+")")
	}
	w.Warned = true
	c.events.Warn(x.local, wire.FailedReflectionReason, fmt.Sprintf(
		"cluster %s: immutable field %s of %s %s/%s was not updated, all other fields were; to recreate the remote object, delete it",
		c.remoteClusterID, strings.Join(slices.Compact(fields), ", "), c.copyKind, x.Namespace, x.Name))
}
