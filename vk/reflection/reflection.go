// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

// The API of the engine for its users.
type (
	// Manager reflects the objects of this cluster to one provider. Safe for concurrent use.
	Manager = engine.Manager
	// Options are the options of a Manager.
	Options = engine.Options
	// Kind describes a reflected kind.
	Kind = engine.Kind
	// Policy decides, by annotations, which objects of a kind are reflected.
	Policy = engine.Policy
	// Chains runs the plugin chains.
	Chains = engine.Chains
	// APIServer is the address of this cluster's API server as offloaded pods see it.
	APIServer = engine.APIServer
	// Classes are the provider's classes if the VirtualNode names none.
	Classes = engine.Classes
	// Storage configures whether and how claims get their volumes on the provider.
	Storage = engine.Storage
)

// Policies.
const (
	DenyList  = engine.DenyList
	AllowList = engine.AllowList
	Always    = engine.Always
)

// Write modes for copies.
const (
	Apply   = engine.Apply
	Replace = engine.Replace
)

// Values of Options.APIServerSupport.
const (
	SupportDisabled = engine.SupportDisabled
	SupportTokenAPI = engine.SupportTokenAPI
	SupportLegacy   = engine.SupportLegacy
	SupportRemote   = engine.SupportRemote
)

// New prepares the reflection and contacts neither cluster. Without Options.Kinds it reflects DefaultKinds. The error
// lists all errors of the options.
func New(options Options) (*Manager, error) {
	if options.Kinds == nil {
		options.Kinds = DefaultKinds()
	}
	return engine.New(options)
}

// Pods returns the cached pods of the virtual node. The list is empty unless pods are reflected. The pods must not be
// modified.
func Pods(m *Manager) []*unstructured.Unstructured { return m.OfNode(PodKind) }

// Pod returns a pod of the list that Pods returns, or nil. The pod must not be modified.
func Pod(m *Manager, namespace, name string) *unstructured.Unstructured {
	return m.ObjectOfNode(PodKind, namespace, name)
}
