// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// Exclusion describes an object of this cluster that deliberately has no copy on the provider.
type Exclusion struct {
	Kind       string                      // kind as in the reference
	Object     *unstructured.Unstructured  // cached object, see Cache.Objects
	Resource   schema.GroupVersionResource // resource of copies
	RemoteName string                      // name that the copy would have
	Reason     string                      // why the object is not reflected
	ByPolicy   bool                        // the policy of the kind, with the object's annotations, excludes the object
}

// Exclusions returns the referenced objects that deliberately have no copy: their annotations, the policy of their kind,
// or a plugin exclude them from reflection. It returns no objects of kinds that another virtual kubelet reflects.
func (s *Scope) Exclusions(references []queue.Reference) (exclusions []Exclusion) {
	for _, reference := range references {
		r := s.r.m.reflector(reference.Kind)
		own := s.namespace.of(reference.Kind)
		if r == nil || own == nil || reference.Name == "" {
			continue
		}
		name := r.copies.LocalName(reference.Name)
		reason := own.steps.Exclusion(name)
		if reason == "" || r.copies.RemoteName(name) != reference.Name {
			continue
		}
		object := own.Object(own.Key(name))
		if object == nil {
			continue
		}
		exclusions = append(exclusions, Exclusion{Kind: reference.Kind, Object: object, Resource: r.copies.Resource, RemoteName: reference.Name,
			Reason: reason, ByPolicy: !own.MayCross(object)})
	}
	return exclusions
}
