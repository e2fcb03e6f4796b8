// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/settings"
)

// Names under which other packages use the engine.
type (
	// Manager reflects the objects of this cluster to one provider. It is safe for concurrent use.
	Manager = engine.Manager
	// Options are the options of a Manager.
	Options = engine.Options
	// Kind describes a reflected kind.
	Kind = engine.Kind
	// Policy determines from annotations which objects of a kind are reflected.
	Policy = engine.Policy
	// Chains runs the plugin chains.
	Chains = mutation.Chains
	// APIServer is the address of this cluster's API server as offloaded pods see it.
	APIServer = settings.APIServer
	// Classes are the provider's ingress class and load balancer class that are used if the VirtualNode does not list
	// any.
	Classes = settings.Classes
	// Storage determines whether and how claims get their volumes on the provider.
	Storage = settings.Storage
)

// Policies for the reflection of a kind.
const (
	DenyList  = engine.DenyList
	AllowList = engine.AllowList
	Always    = engine.Always
)

// Modes of writing copies.
const (
	Apply   = copies.Apply
	Replace = copies.Replace
)

// Values of Options.APIServerSupport.
const (
	SupportDisabled = engine.SupportDisabled
	SupportTokenAPI = engine.SupportTokenAPI
	SupportLegacy   = engine.SupportLegacy
	SupportRemote   = engine.SupportRemote
)

// New returns a Manager that reflects the objects of this cluster to one provider while Manager.Run runs. New sends
// no requests. If Options.Kinds is nil, DefaultKinds are reflected. The returned error lists all errors in the
// options.
func New(options Options) (*Manager, error) {
	if options.Kinds == nil {
		options.Kinds = DefaultKinds()
	}
	return engine.New(options)
}

// Pods returns the cached pods of the virtual node. The list is empty if pods are not reflected. Callers must not
// modify the pods.
func Pods(m *Manager) []*unstructured.Unstructured { return m.OfNode(PodKind) }

// Pod returns one of the pods that Pods returns, or nil. Callers must not modify the pod.
func Pod(m *Manager, namespace, name string) *unstructured.Unstructured {
	return m.ObjectOfNode(PodKind, namespace, name)
}
