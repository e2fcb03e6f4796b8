// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package shadows contains the common code of the controllers of shadow kinds. These controllers watch shadow objects
// and the objects that are created from them.
package shadows

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/onepass"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Kind is a shadow kind: ShadowPod or ShadowEndpointSlice.
type Kind string

// MissingOriginReason is the reason of the Event about a shadow object that does not name its consumer.
const MissingOriginReason = "MissingOrigin"

func (k Kind) gvk() schema.GroupVersionKind { return offloading.GroupVersion.WithKind(string(k)) }

// New returns an empty object of the kind.
func (k Kind) New() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(k.gvk())
	return object
}

// NewList returns an empty list of the kind.
func (k Kind) NewList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(offloading.GroupVersion.WithKind(string(k) + "List"))
	return list
}

// Owner returns an owner reference to shadow.
func (k Kind) Owner(shadow *unstructured.Unstructured) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(shadow, k.gvk())}
}

// CacheOptions returns options for the manager's cache. With them, it contains the shadow objects of the kind, and the
// objects of made's kind whose managed-by label is managedBy. The latter are transformed with trim. The content of a
// shadow object is stored as text if it is not larger than maxBytes returns (see Whole). Cached objects must not be
// modified.
func (k Kind) CacheOptions(maxBytes func(shadow *unstructured.Unstructured) int, made client.Object, managedBy string, trim toolscache.TransformFunc) map[client.Object]cache.ByObject {
	shared := true
	compact := func(object any) (any, error) {
		if shadow, ok := object.(*unstructured.Unstructured); ok {
			Compact(shadow, maxBytes(shadow), contentField)
		}
		return object, nil
	}
	return map[client.Object]cache.ByObject{
		k.New(): {UnsafeDisableDeepCopy: &shared, Transform: compact},
		made: {
			Label:                 labels.SelectorFromSet(labels.Set{wire.ManagedByLabel: managedBy}),
			Transform:             trim,
			UnsafeDisableDeepCopy: &shared,
		},
	}
}

// Decoding returns the decoding options of the kind.
func (k Kind) Decoding() onepass.Decoding {
	return onepass.Decoding{k.gvk(): {DropManagedFields: true, Text: []string{contentField}, Limits: Limits}}
}

// Controller returns the builder of a controller with n workers. It reconciles an object of the kind after each change
// that workers.Changed lets pass.
func (k Kind) Controller(mgr manager.Manager, name string, n int, predicates ...predicate.Predicate) *builder.Builder {
	return builder.ControllerManagedBy(mgr).
		Named(name).
		WithOptions(workers.Options(n)).
		For(k.New(), builder.WithPredicates(append(predicates, predicate.Funcs{UpdateFunc: workers.Changed})...))
}
