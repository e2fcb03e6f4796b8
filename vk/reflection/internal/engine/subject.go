// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
)

// Subject is the object of this cluster that belongs to a name on the provider.
type Subject struct {
	Kind    *Kind
	Object  *unstructured.Unstructured
	Copy    *unstructured.Unstructured // nil if it is not known
	Derived *unstructured.Unstructured // the object that the provider made from the copy, if it is watched
	// Unwatched means that the name belongs to an object made from the copy that is not watched.
	Unwatched bool
}

// Absence is the reason why a Subject is missing.
type Absence int

// Reasons of an Absence.
const (
	NoAbsence   Absence = iota
	NoKind              // the provider's kind is not reflected in the namespace
	NotOurs             // another virtual kubelet of the provider reflects the kind
	NotKnownYet         // the scope is not ready
	NoObject            // this cluster has no such object
)

// Subject returns the object of this cluster for an object of the provider with a kind and a name.
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

// meant returns the reflector whose copies, or objects made from them, have the kind on the provider. It returns nil if
// no reflector does.
func (m *Manager) meant(kind schema.GroupKind) *reflector {
	for _, r := range m.all() {
		if r.kind.Means(kind) {
			return r
		}
	}
	return nil
}

// Means reports whether reflected objects have that kind on the provider: the kind of the copy or, for shadows, the
// kind that the provider's controllers make from them.
func (k *Kind) Means(kind schema.GroupKind) bool {
	if k.Reverse || k.Chain.None {
		return false
	}
	if k.Copy.GVK.Kind != "" && k.Copy.GVK.GroupKind() == kind {
		return true
	}
	return (k.Copy.GVK.Kind == "" || k.Copy.GVK.Group == offloadingv1beta1.GroupVersion.Group) && k.SourceKind() == kind
}

// SourceKind returns the kind of the objects in this cluster.
func (k *Kind) SourceKind() schema.GroupKind {
	return schema.ParseGroupKind(k.Name)
}
