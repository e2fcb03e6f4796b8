// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
)

// Subject is the object of this cluster for a name on the provider.
type Subject struct {
	Kind    *Kind
	Object  *unstructured.Unstructured
	Copy    *unstructured.Unstructured // nil when it is not known
	Derived *unstructured.Unstructured // what was made of the copy, as far as that is watched
	// Unwatched: it is something made of the copy that is not watched.
	Unwatched bool
}

// Absence is the reason why there is no Subject.
type Absence int

// Reasons of an Absence.
const (
	NoAbsence   Absence = iota
	NoKind              // nothing of that kind is reflected in the namespace
	NotOurs             // another virtual kubelet of the provider reflects it
	NotKnownYet         // the scope is not ready
	NoObject            // there is no such object here
)

// Subject finds the object of this cluster behind one that the provider has under a kind and a name.
func (e Reader) Subject(s *Scope, kind schema.GroupKind, name string) (*Subject, Absence) {
	of := e.r.m.meant(kind)
	var own *Scope
	if of != nil {
		own = s.namespace.of(of.kind.Name)
	}
	switch {
	case of != nil && !of.kind.PerNode && !e.IsLeading():
		return nil, NotOurs
	case own == nil:
		return nil, NoKind
	case !own.ready.Load():
		return nil, NotKnownYet
	}
	key := own.Key(of.localName(name))
	object := own.Object(key)
	if object == nil {
		return nil, NoObject
	}
	copied, _ := own.Copy(key.Name)
	derived := of.handler.Derived(own, name)
	isDerived := len(of.kind.Copy.Into) > 0 && of.kind.SourceKind() == kind
	return &Subject{Kind: &of.kind, Object: object, Copy: copied, Derived: derived, Unwatched: isDerived && !of.kind.PerNode}, NoAbsence
}

// meant returns the reflector of the objects that the provider has under a kind, or nil.
func (m *Manager) meant(kind schema.GroupKind) *reflector {
	for _, r := range m.all() {
		if r.kind.Means(kind) {
			return r
		}
	}
	return nil
}

// Means reports whether the provider has what is reflected under that kind: as the copy is stored, and for shadows what the
// provider's controllers make of them.
func (k *Kind) Means(kind schema.GroupKind) bool {
	if k.Reverse || k.Chain.None {
		return false
	}
	if k.Copy.GVK.Kind != "" && k.Copy.GVK.GroupKind() == kind {
		return true
	}
	return (k.Copy.GVK.Kind == "" || k.Copy.GVK.Group == offloadingv1beta1.GroupVersion.Group) && k.SourceKind() == kind
}

// SourceKind is the kind of the objects here.
func (k *Kind) SourceKind() schema.GroupKind {
	return schema.ParseGroupKind(k.Name)
}
