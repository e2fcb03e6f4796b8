// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package settings tracks the inputs of the plugins' context that can change at run time: the VirtualNode, the clusters
// that have virtual nodes, and the addresses in the network between the clusters.
package settings

import (
	"log/slog"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/report"
)

// The resources that the settings are read from.
var (
	nodesResource = corev1.SchemeGroupVersion.WithResource("nodes")
	ipsResource   = schema.GroupVersionResource{Group: "ipam.liqo.io", Version: "v1alpha1", Resource: "ips"}
)

// Listener is notified of changed settings, so that it can reconcile the objects that depend on them.
type Listener interface {
	// VirtualNodeChanged is called when the patch or the classes of the VirtualNode have changed.
	VirtualNodeChanged()
	// NodesChanged is called when the set of clusters with virtual nodes has changed.
	NodesChanged()
	// NodeRegistered is called when this virtual kubelet's Node is first seen with our labels.
	NodeRegistered()
	// APIServerLocated is called when the network first reports the addresses of this cluster's API server.
	APIServerLocated()
	// AddressesChanged is called when an IP resource in a namespace has changed.
	AddressesChanged(namespace string)
}

// Options are the options of New. The fields that are also in engine.Options are documented there.
type Options struct {
	LocalClusterID, RemoteClusterID string
	NodeName, NodeIP                string
	TenantNamespace, LiqoNamespace  string
	VirtualNode                     string
	APIServerSupport                string
	APIServer                       APIServer
	Classes                         Classes
	Storage                         Storage
	RemoteIPs                       *ipmap.Table
	LocalPodCIDRs                   ipmap.Ranges
	FollowIPs, DisableIPReflection  bool

	// Informer returns the shared informer for a resource of this cluster.
	Informer func(resource schema.GroupVersionResource, o informer.Options) *informer.Informer
	Listener Listener
	Events   *report.KindReporter // writes Events about the VirtualNode
	Log      *slog.Logger
}

// Settings tracks the VirtualNode, the clusters that have virtual nodes, and the addresses in the network between the
// clusters. It is safe for concurrent use.
type Settings struct {
	// VirtualNode, Nodes and IPs are the informers that the settings are read from. IPs is nil unless Options.FollowIPs
	// is set.
	VirtualNode, Nodes, IPs *informer.Informer

	options    Options
	values     atomic.Pointer[values]
	mu         sync.Mutex    // serializes changes
	changes    atomic.Uint64 // number of changes of values and of address mappings
	nodeIsOurs atomic.Bool   // whether the Node has been seen with our labels
}

// New returns Settings. They are updated while their informers run.
func New(o Options) *Settings {
	s := &Settings{options: o}
	s.values.Store(&values{virtualNodes: map[string]any{}, apiServerIPs: texts(o.APIServer.IPs)})
	s.VirtualNode = o.Informer(offloadingv1beta1.VirtualNodeGVR, informer.Options{Selection: informer.Selection{
		Namespace: o.TenantNamespace, Fields: fields.OneTermEqualSelector("metadata.name", o.VirtualNode).String(),
	}})
	s.VirtualNode.OnEvent(s.virtualNodeChanged)
	s.Nodes = o.Informer(nodesResource, informer.Options{Selection: informer.Selection{Labels: wire.RemoteClusterIDLabel}})
	s.Nodes.OnEvent(s.nodeChanged)
	if o.FollowIPs {
		s.IPs = o.Informer(ipsResource, informer.Options{Indexers: cache.Indexers{addressIndex: indexByAddress}})
		s.IPs.OnEvent(s.ipChanged)
	}
	return s
}

func texts(list []string) []any {
	converted := make([]any, 0, len(list))
	for _, text := range list {
		converted = append(converted, text)
	}
	return converted
}

// Changes returns how many changes of settings and address mappings there have been.
func (s *Settings) Changes() uint64 { return s.changes.Load() }

// OwnNode makes the Node count as seen with our labels. It is for tests.
func (s *Settings) OwnNode() { s.nodeIsOurs.Store(true) }

// NodeIsOurs reports whether the Node has been seen with our labels. Until then, the Node's pods are not reflected.
func (s *Settings) NodeIsOurs() bool { return s.nodeIsOurs.Load() }

// Node returns this virtual kubelet's Node from the cache, or nil if it is not there.
func (s *Settings) Node() *unstructured.Unstructured { return s.Nodes.Get("", s.options.NodeName) }

// ClusterOf returns the ID of the cluster that a virtual node represents. It returns "" if the node is not a virtual
// node.
func (s *Settings) ClusterOf(node string) string {
	id, _ := s.values.Load().virtualNodes[node].(string)
	return id
}

// Hash returns a hash of the settings that come from the VirtualNode.
func (s *Settings) Hash() uint64 {
	now := s.values.Load()
	return content.FieldHash("patch", document.Of(now.patch)) + content.FieldHash(now.loadBalancerClass, document.Of(now.ingressClass)) +
		content.FieldHash("storageClass", document.Of(now.storageClass))
}

// NodesHash returns a hash of the cluster IDs of the virtual nodes.
func (s *Settings) NodesHash() uint64 {
	return content.FieldHash("nodes", document.Of(s.values.Load().virtualNodes))
}
