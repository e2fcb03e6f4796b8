// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Subject is the object of this cluster that belongs to a name on the provider.
type Subject struct {
	Kind    *Kind
	Object  *unstructured.Unstructured
	Copy    *unstructured.Unstructured // nil if the copy is not known
	Derived *unstructured.Unstructured // the object that the provider made from the copy, if it is watched
	// Unwatched means that the name belongs to an object that the provider made from the copy, but whose kind is not
	// watched.
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

// Subject returns the object of this cluster that an object of the provider with the given kind and name belongs to. If
// there is none, the Absence is the reason.
func (e *Env) Subject(s *Scope, kind schema.GroupKind, name string) (*Subject, Absence) {
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
	key := own.Key(of.copies.LocalName(name))
	object := own.Object(key)
	if object == nil {
		return nil, NoObject
	}
	copied, _ := own.Copy(key.Name)
	derived := of.handler.Derived(own, name)
	isDerived := len(of.kind.Copy.Into) > 0 && of.kind.SourceKind() == kind
	return &Subject{Kind: &of.kind, Object: object, Copy: copied, Derived: derived, Unwatched: isDerived && !of.kind.PerNode}, NoAbsence
}
