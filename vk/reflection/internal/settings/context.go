// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"maps"
	"net"
	"reflect"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// values contains the inputs of the plugins' context that can change at run time. It is immutable: each change replaces
// the whole struct.
type values struct {
	patch             map[string]any // offloadingPatch of the VirtualNode
	loadBalancerClass string
	ingressClass      string
	storageClass      string
	virtualNodes      map[string]any // cluster IDs of the virtual nodes, by node name
	apiServerIPs      []any
	apiServerExpected bool // the network will report the addresses of this cluster's API server
}

// Contexts caches the context roots of the plugins for one namespace. They are computed again after the values have
// changed.
type Contexts struct {
	Local, Remote string // names of the namespace in this cluster and of its remote namespace
	latest        atomic.Pointer[contexts]
}

// contexts contains the context root of each hook for one version of the values.
type contexts struct {
	of    *values
	hooks [2]map[string]any
}

// Context returns the context root for a hook in a namespace. The root is shared and must not be modified. Plugins
// cannot modify it.
func (s *Settings) Context(t *Contexts, hook host.Hook) map[string]any {
	now := s.values.Load()
	if known := t.latest.Load(); known != nil && known.of == now {
		return known.hooks[hook]
	}
	made := &contexts{of: now}
	for _, h := range []host.Hook{host.Outgoing, host.Incoming} {
		made.hooks[h] = s.newContext(now, t, h)
	}
	t.latest.Store(made)
	return made.hooks[hook]
}

func (s *Settings) newContext(now *values, t *Contexts, hook host.Hook) map[string]any {
	o := &s.options
	root := map[string]any{
		"hook":           hook.String(),
		"localClusterID": o.LocalClusterID, "remoteClusterID": o.RemoteClusterID,
		"localNamespace": t.Local, "remoteNamespace": t.Remote,
		"nodeName": o.NodeName, "nodeIP": o.NodeIP,
		"apiServerSupport": o.APIServerSupport,
		"apiServer":        map[string]any{"host": o.APIServer.Host, "port": o.APIServer.Port, "domain": o.APIServer.Domain, "ips": s.apiServerAddresses(now), "pending": s.awaitsAPIServer(now)},
		"virtualNodes":     now.virtualNodes, "disableIPReflection": o.DisableIPReflection,
	}
	if now.patch != nil {
		root["offloadingPatch"] = now.patch
	}
	if class := cmp.Or(now.loadBalancerClass, o.Classes.LoadBalancer); class != "" {
		root["loadBalancerClass"] = class
	}
	if class := cmp.Or(now.ingressClass, o.Classes.Ingress); class != "" {
		root["ingressClass"] = class
	}
	if class := cmp.Or(now.storageClass, o.Storage.RemoteClass); class != "" {
		root["storageClass"] = class
	}
	return root
}

// apiServerAddresses returns the addresses to which the DNS names of this cluster's API server resolve. If an IP
// address is configured as the host, it applies to all names and to the environment variables.
func (s *Settings) apiServerAddresses(now *values) []any {
	if host := s.options.APIServer.Host; net.ParseIP(host) != nil {
		return []any{host}
	}
	return now.apiServerIPs
}

// awaitsAPIServer reports whether pods must wait because the network has not reported yet how the provider reaches this
// cluster's API server. If no network reports it, pods do not wait. A network is expected to report it if it has
// created an IP resource for the API server. The existence of the IP CRD does not mean that the network will report it.
func (s *Settings) awaitsAPIServer(now *values) bool {
	return s.options.APIServer.Host == "" && now.apiServerExpected && len(now.apiServerIPs) == 0
}

// change replaces the values with a copy that edit has changed. It reports whether the copy differs.
func (s *Settings) change(edit func(*values)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.values.Load()
	next := *before
	edit(&next)
	if reflect.DeepEqual(*before, next) {
		return false
	}
	s.values.Store(&next)
	s.changes.Add(1)
	return true
}

// virtualNodeChanged handles an event of the VirtualNode. If the VirtualNode is deleted, the last settings remain in
// effect, because this virtual kubelet is deleted only after its VirtualNode. They also remain in effect while the
// patch is invalid.
func (s *Settings) virtualNodeChanged(_, object *unstructured.Unstructured, deleted bool) {
	if deleted {
		return
	}
	spec, _ := object.Object["spec"].(map[string]any)
	patch, isMap := spec["offloadingPatch"].(map[string]any)
	if spec["offloadingPatch"] != nil && !isMap {
		s.options.Events.Warn(object, failure.InvalidObjectReason, "spec.offloadingPatch is not an object; the last valid value stays in force")
		return
	}
	patch = withSkipLists(patch, raw.Map(raw.Nested(object.Object, "status", "effectiveOffloadingPatch")))
	changed := s.change(func(v *values) {
		v.patch = patch
		v.loadBalancerClass = defaultClass(spec["loadBalancerClasses"], "loadBalancerClassName")
		v.ingressClass = defaultClass(spec["ingressClasses"], "ingressClassName")
		v.storageClass = defaultClass(spec["storageClasses"], "storageClassName")
	})
	if changed {
		s.options.Log.Info("The VirtualNode's patch or classes changed: every object is reconciled again")
		s.options.Listener.VirtualNodeChanged()
	}
}

// withSkipLists returns the patch with the skip lists of the VkOptionsTemplate, i.e. the labels and annotations that
// are not reflected. All other fields come from the user's patch.
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

// defaultClass returns the class that is marked as the default, or the first class if none is marked.
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

// nodeChanged handles an event of a node. It updates the cluster IDs.
func (s *Settings) nodeChanged(_, node *unstructured.Unstructured, deleted bool) {
	cluster, _ := raw.Labels(node.Object)[wire.RemoteClusterIDLabel].(string)
	changed := s.change(func(v *values) {
		nodes := maps.Clone(v.virtualNodes)
		if deleted || cluster == "" {
			delete(nodes, node.GetName())
		} else {
			nodes[node.GetName()] = cluster
		}
		v.virtualNodes = nodes
	})
	if changed {
		s.options.Listener.NodesChanged()
	}
	if !deleted && s.standsForProvider(node) && !s.nodeIsOurs.Swap(true) {
		s.options.Log.Info("The node is registered by this virtual kubelet: its pods are reflected", "node", node.GetName())
		s.options.Listener.NodeRegistered()
	}
}

// standsForProvider reports whether the node is the virtual node of this virtual kubelet. A virtual kubelet that was
// started with the name of a real node must not change the pods of that node. If the labels of the virtual kubelet's
// own node are removed later, the pods of the node must still be reflected.
func (s *Settings) standsForProvider(node *unstructured.Unstructured) bool {
	labels := raw.Labels(node.Object)
	return node.GetName() == s.options.NodeName && labels[wire.TypeLabel] == wire.VirtualNodeType && labels[wire.RemoteClusterIDLabel] == s.options.RemoteClusterID
}

// KnowsCluster reports whether this cluster has a virtual node for the cluster with the given ID.
func (s *Settings) KnowsCluster(id string) bool {
	for _, cluster := range s.values.Load().virtualNodes {
		if cluster == id {
			return true
		}
	}
	return false
}
