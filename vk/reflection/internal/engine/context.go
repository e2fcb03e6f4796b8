// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"maps"
	"net"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// settings are the inputs of the plugins' context that can change while running. Immutable.
type settings struct {
	patch             map[string]any // offloadingPatch of the VirtualNode
	loadBalancerClass string
	ingressClass      string
	storageClass      string
	virtualNodes      map[string]any // node name to cluster id
	apiServerIPs      []any
	apiServerExpected bool // the network will report addresses of this cluster's API server
}

// contexts has the context roots of the plugins for one namespace and one version of the settings.
type contexts struct {
	of    *settings
	hooks [2]map[string]any
}

// context returns the context root for a hook in a namespace. The root is shared: plugins cannot write to it, and other
// callers must not.
func (m *Manager) context(t *extension, hook host.Hook) map[string]any {
	now := m.settings.Load()
	if known := t.contexts.Load(); known != nil && known.of == now {
		return known.hooks[hook]
	}
	made := &contexts{of: now}
	for _, h := range []host.Hook{host.Outgoing, host.Incoming} {
		made.hooks[h] = m.newContext(now, t, h)
	}
	t.contexts.Store(made)
	return made.hooks[hook]
}

func (m *Manager) newContext(s *settings, t *extension, hook host.Hook) map[string]any {
	o := &m.options
	root := map[string]any{
		"hook":           hook.String(),
		"localClusterID": o.LocalClusterID, "remoteClusterID": o.RemoteClusterID,
		"localNamespace": t.local, "remoteNamespace": t.remote,
		"nodeName": o.NodeName, "nodeIP": o.NodeIP,
		"apiServerSupport": o.APIServerSupport,
		"apiServer":        map[string]any{"host": o.APIServer.Host, "port": o.APIServer.Port, "domain": o.APIServer.Domain, "ips": m.apiServerAddresses(s), "pending": m.awaitsAPIServer(s)},
		"virtualNodes":     s.virtualNodes, "disableIPReflection": o.DisableIPReflection,
	}
	if s.patch != nil {
		root["offloadingPatch"] = s.patch
	}
	if class := cmp.Or(s.loadBalancerClass, o.Classes.LoadBalancer); class != "" {
		root["loadBalancerClass"] = class
	}
	if class := cmp.Or(s.ingressClass, o.Classes.Ingress); class != "" {
		root["ingressClass"] = class
	}
	if class := cmp.Or(s.storageClass, o.Storage.RemoteClass); class != "" {
		root["storageClass"] = class
	}
	return root
}

// apiServerAddresses returns the addresses of the names of this cluster's API server. An address that was configured as
// an IP applies to all names, and likewise to the environment variables.
func (m *Manager) apiServerAddresses(s *settings) []any {
	if host := m.options.APIServer.Host; net.ParseIP(host) != nil {
		return []any{host}
	}
	return s.apiServerIPs
}

// awaitsAPIServer reports whether the network has not yet reported how the provider reaches this cluster's API server.
// There is no wait without a network that reports it. Liqo's network counts once it has created an IP object for the
// API server; the IP resource alone is not enough.
func (m *Manager) awaitsAPIServer(s *settings) bool {
	return m.options.APIServer.Host == "" && s.apiServerExpected && len(s.apiServerIPs) == 0
}

// outgoing returns the context root for an object: the root of the namespace plus the field that the kind's handler
// adds.
func (s *Scope) outgoing(local *unstructured.Unstructured) map[string]any {
	root := s.Context(host.Outgoing)
	field, value := s.r.handler.Context(s, local)
	if len(value) == 0 && !s.r.kind.Follows.Namespaces {
		return root
	}
	root = maps.Clone(root)
	if len(value) > 0 {
		root[field] = value
	}
	if s.r.kind.Follows.Namespaces {
		root["namespaces"] = s.r.m.remoteNamespaces()
	}
	return root
}

// remoteNamespaces returns the remote namespace of each namespace that is offloaded.
func (m *Manager) remoteNamespaces() map[string]any {
	offloaded := map[string]any{}
	for local, remote := range m.mapper.Running() {
		offloaded[local] = remote
	}
	return offloaded
}

// Context returns the plugins' context of a hook. It is shared and must not be modified.
func (s *Scope) Context(hook host.Hook) map[string]any { return s.r.m.context(s.namespace, hook) }

// change replaces the settings by an edited copy and reports whether they differ.
func (m *Manager) change(edit func(*settings)) bool {
	m.settingsMu.Lock()
	defer m.settingsMu.Unlock()
	before := m.settings.Load()
	next := *before
	edit(&next)
	if reflect.DeepEqual(*before, next) {
		return false
	}
	m.settings.Store(&next)
	m.changes.Add(1)
	return true
}

// virtualNodeChanged follows the VirtualNode. A VirtualNode that is deleted or cannot be parsed changes nothing: this
// virtual kubelet is deleted after its VirtualNode, and the last valid patch applies until then.
func (m *Manager) virtualNodeChanged(_, object *unstructured.Unstructured, deleted bool) {
	if deleted {
		return
	}
	spec, _ := object.Object["spec"].(map[string]any)
	patch, isMap := spec["offloadingPatch"].(map[string]any)
	if spec["offloadingPatch"] != nil && !isMap {
		m.events.Warn("VirtualNode", object, InvalidObjectReason, "spec.offloadingPatch is not an object; the last valid value stays in force")
		return
	}
	patch = withSkipLists(patch, raw.Map(raw.Nested(object.Object, "status", "effectiveOffloadingPatch")))
	changed := m.change(func(s *settings) {
		s.patch = patch
		s.loadBalancerClass = defaultClass(spec["loadBalancerClasses"], "loadBalancerClassName")
		s.ingressClass = defaultClass(spec["ingressClasses"], "ingressClassName")
		s.storageClass = defaultClass(spec["storageClasses"], "storageClassName")
	})
	if changed {
		m.log.Info("The VirtualNode's patch or classes changed: every object is reconciled again")
		m.enqueueKinds(func(Kind) bool { return true })
	}
}

// withSkipLists returns the patch with the skip lists of the VkOptionsTemplate added: the labels and annotations that
// are not reflected. All other fields are the user's.
func withSkipLists(patch, effective map[string]any) map[string]any {
	for _, field := range []string{"labelsNotReflected", "annotationsNotReflected"} {
		all, _ := patch[field].([]any)
		more, _ := effective[field].([]any)
		for _, key := range more {
			if !slices.Contains(all, key) {
				all = append(slices.Clip(all), key)
			}
		}
		if before, _ := patch[field].([]any); len(all) > len(before) {
			patch = maps.Clone(patch)
			if patch == nil {
				patch = map[string]any{}
			}
			patch[field] = all
		}
	}
	return patch
}

// defaultClass returns the class marked as default, or else the first.
func defaultClass(classes any, field string) string {
	list, _ := classes.([]any)
	first := ""
	for _, item := range list {
		class, _ := item.(map[string]any)
		name, _ := class[field].(string)
		if byDefault, _ := class["default"].(bool); byDefault {
			return name
		}
		if first == "" {
			first = name
		}
	}
	return first
}

// nodeChanged tracks the cluster of each virtual node.
func (m *Manager) nodeChanged(_, node *unstructured.Unstructured, deleted bool) {
	cluster, _ := raw.Labels(node.Object)[wire.RemoteClusterIDLabel].(string)
	changed := m.change(func(s *settings) {
		nodes := maps.Clone(s.virtualNodes)
		if deleted || cluster == "" {
			delete(nodes, node.GetName())
		} else {
			nodes[node.GetName()] = cluster
		}
		s.virtualNodes = nodes
	})
	if changed {
		m.enqueueKinds(func(k Kind) bool { return k.Follows.Network || k.Follows.Nodes })
	}
	if !deleted && m.standsForProvider(node) && !m.nodeIsOurs.Swap(true) {
		m.log.Info("The node is registered by this virtual kubelet: its pods are reflected", "node", node.GetName())
		m.enqueueKinds(func(k Kind) bool { return k.PerNode })
		if !m.standing.Load() {
			m.eachHandler(Handler.NamespacesChanged)
		}
	}
}

// standsForProvider reports whether the node is the virtual node of this virtual kubelet. A virtual kubelet that was
// started with the name of a real node must leave the pods of the node alone. A virtual kubelet whose node has lost its
// labels continues to reflect its own pods.
func (m *Manager) standsForProvider(node *unstructured.Unstructured) bool {
	labels := raw.Labels(node.Object)
	return node.GetName() == m.options.NodeName && labels[wire.TypeLabel] == wire.VirtualNodeType && labels[wire.RemoteClusterIDLabel] == m.options.RemoteClusterID
}

func (m *Manager) enqueueKinds(which func(Kind) bool) {
	for _, r := range m.all() {
		if which(r.kind) {
			r.enqueueAll()
		}
	}
}
