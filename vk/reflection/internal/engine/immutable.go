// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
)

// isImmutability reports whether a change was refused only because it changes immutable fields.
func isImmutability(err error) bool {
	causes := causesOf(err)
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(cause metav1.StatusCause) bool {
		return !strings.Contains(cause.Message, "immutable") && !strings.Contains(cause.Message, "may not change")
	})
}

// causesOf returns the causes in an API server's rejection of an invalid object.
func causesOf(err error) []metav1.StatusCause {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}

// withImmutable returns the object with the copy's values of the immutable fields that the refusal names, so that all
// other changes cross. It returns nil if the refusal names a field inside a list, or the copy as a whole.
func withImmutable(object, remote *unstructured.Unstructured, refusal error) *unstructured.Unstructured {
	object = object.DeepCopy() // the object shares with the cache
	for _, cause := range causesOf(refusal) {
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

// warnImmutable warns about the fields of the remote object that were not updated, and describes the remedy.
func (r *reflector) warnImmutable(w *Worker, x *Desired, refusal error) {
	var fields []string
	for _, cause := range causesOf(refusal) {
		fields = append(fields, cause.Field+" ("+cause.Message+")")
	}
	w.Warned = true
	r.m.events.Warn(r.kind.Name, x.local, wire.FailedReflectionReason, fmt.Sprintf(
		"cluster %s: immutable field %s of %s %s/%s was not updated, all other fields were; to recreate the remote object, delete it",
		r.m.options.RemoteClusterID, strings.Join(slices.Compact(fields), ", "), r.kind.targetKind(), x.Namespace, x.Name))
}
