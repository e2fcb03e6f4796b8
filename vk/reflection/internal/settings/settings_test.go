// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/report"
)

// listener records the calls of a Listener.
type listener struct{ heard []string }

func (l *listener) VirtualNodeChanged() { l.heard = append(l.heard, "virtual node") }
func (l *listener) NodesChanged()       { l.heard = append(l.heard, "nodes") }
func (l *listener) NodeRegistered()     { l.heard = append(l.heard, "registered") }
func (l *listener) APIServerLocated()   { l.heard = append(l.heard, "API server") }
func (l *listener) AddressesChanged(namespace string) {
	l.heard = append(l.heard, "addresses of "+namespace)
}
func (l *listener) take() (heard []string) { heard, l.heard = l.heard, nil; return heard }

func newSettings(t *testing.T, edit func(*Options)) (*Settings, *listener) {
	t.Helper()
	l := &listener{}
	// The client sends no requests, because the informers do not run.
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	source := informer.Source{Client: client, Strings: informer.NewStrings()}
	o := Options{
		LocalClusterID: "rome", RemoteClusterID: "milan", NodeName: "milan", NodeIP: "10.0.0.1", TenantNamespace: "tenant", LiqoNamespace: "liqo", VirtualNode: "milan",
		APIServerSupport: "TokenAPI", FollowIPs: true, Listener: l, Events: report.New(func() {}).ForKind("VirtualNode"), Log: slog.New(slog.DiscardHandler),
		Informer: func(resource schema.GroupVersionResource, o informer.Options) *informer.Informer {
			return source.New(resource, o)
		},
	}
	if edit != nil {
		edit(&o)
	}
	return New(o), l
}

func virtualNode(spec, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "milan"}, "spec": spec, "status": status}}
}

func node(name string, labels map[string]string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
	made.SetLabels(labels)
	return made
}

func ip(namespace, name, from, to string, labels map[string]string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "IP",
		"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": map[string]any{"ip": from}, "status": map[string]any{"ip": to}}}
	made.SetLabels(labels)
	return made
}

// TestContextFollowsTheVirtualNode checks which fields of the VirtualNode are in the plugins' context. The context must
// not change if the VirtualNode becomes invalid or is deleted.
func TestContextFollowsTheVirtualNode(t *testing.T) {
	t.Parallel()
	s, l := newSettings(t, func(o *Options) { o.Classes.Ingress = "configured" })
	shop := &Contexts{Local: "shop", Remote: "shop-rome"}
	first := s.Context(shop, host.Outgoing)
	assert.Equal(t, "shop-rome", first["remoteNamespace"])
	assert.Equal(t, "configured", first["ingressClass"])
	assert.NotContains(t, first, "offloadingPatch")
	hash := s.Hash()

	s.virtualNodeChanged(nil, virtualNode(map[string]any{
		"offloadingPatch":     map[string]any{"labelsNotReflected": []any{"own"}},
		"ingressClasses":      []any{map[string]any{"ingressClassName": "first"}, map[string]any{"ingressClassName": "default", "default": true}},
		"storageClasses":      []any{map[string]any{"storageClassName": "fast"}},
		"loadBalancerClasses": []any{map[string]any{"loadBalancerClassName": "cloud"}},
	}, map[string]any{"effectiveOffloadingPatch": map[string]any{"labelsNotReflected": []any{"template", "own"}}}), false)
	assert.Equal(t, []string{"virtual node"}, l.take())
	next := s.Context(shop, host.Incoming)
	assert.Equal(t, map[string]any{"labelsNotReflected": []any{"own", "template"}}, next["offloadingPatch"])
	assert.Equal(t, []any{"default", "fast", "cloud"}, []any{next["ingressClass"], next["storageClass"], next["loadBalancerClass"]})
	assert.NotEqual(t, hash, s.Hash())
	assert.NotContains(t, first, "offloadingPatch", "a context that is in use is changed")

	s.virtualNodeChanged(nil, virtualNode(map[string]any{"offloadingPatch": "text"}, nil), false)
	s.virtualNodeChanged(nil, virtualNode(nil, nil), true)
	assert.Empty(t, l.take())
	assert.Equal(t, next["offloadingPatch"], s.Context(shop, host.Outgoing)["offloadingPatch"])
}

// TestNodesOfThisVirtualKubelet checks which Node counts as this virtual kubelet's Node, and which clusters are known.
func TestNodesOfThisVirtualKubelet(t *testing.T) {
	t.Parallel()
	s, l := newSettings(t, nil)
	s.nodeChanged(nil, node("milan", map[string]string{wire.RemoteClusterIDLabel: "milan"}), false)
	assert.Equal(t, []string{"nodes"}, l.take())
	assert.False(t, s.NodeIsOurs(), "a real node of that name")
	s.nodeChanged(nil, node("turin", map[string]string{wire.RemoteClusterIDLabel: "turin", wire.TypeLabel: wire.VirtualNodeType}), false)
	assert.False(t, s.NodeIsOurs(), "the virtual node of another provider")
	l.take()
	hash := s.NodesHash()
	s.nodeChanged(nil, node("milan", map[string]string{wire.RemoteClusterIDLabel: "milan", wire.TypeLabel: wire.VirtualNodeType}), false)
	assert.Equal(t, []string{"registered"}, l.take())
	assert.True(t, s.NodeIsOurs())
	assert.True(t, s.KnowsCluster("turin"))
	assert.Equal(t, "turin", s.ClusterOf("turin"))
	s.nodeChanged(nil, node("turin", nil), true)
	assert.False(t, s.KnowsCluster("turin"))
	assert.NotEqual(t, hash, s.NodesHash())
	s.nodeChanged(nil, node("milan", nil), false)
	assert.True(t, s.NodeIsOurs(), "a virtual kubelet whose node has lost its labels continues")
}

// TestTheAPIServerIsLocated checks that pods wait for the API server's address only if the network will report it.
func TestTheAPIServerIsLocated(t *testing.T) {
	t.Parallel()
	s, l := newSettings(t, nil)
	shop := &Contexts{Local: "shop", Remote: "shop-rome"}
	apiServer := func() map[string]any { return s.Context(shop, host.Outgoing)["apiServer"].(map[string]any) } //nolint:forcetypeassert // made here
	assert.Equal(t, false, apiServer()["pending"])
	put := func(object *unstructured.Unstructured) {
		require.NoError(t, s.IPs.Put(object))
	}
	put(ip("liqo", wire.APIServerIP, "10.96.0.1", "", nil))
	assert.Equal(t, true, apiServer()["pending"])
	l.take()
	before := s.Changes()
	put(ip("liqo", wire.APIServerIP, "10.96.0.1", "10.70.0.1", nil))
	assert.Equal(t, false, apiServer()["pending"])
	assert.Equal(t, []any{"10.70.0.1"}, apiServer()["ips"])
	assert.Contains(t, l.take(), "API server")
	assert.Greater(t, s.Changes(), before)

	configured, _ := newSettings(t, func(o *Options) { o.APIServer.Host = "10.1.2.3" })
	assert.Equal(t, []any{"10.1.2.3"}, configured.Context(shop, host.Outgoing)["apiServer"].(map[string]any)["ips"]) //nolint:forcetypeassert // made here
}

// TestAddressesAreRemapped checks how remap_ip translates each kind of address in outgoing chains.
func TestAddressesAreRemapped(t *testing.T) {
	t.Parallel()
	pods := ipmap.Ranges{netip.MustParsePrefix("10.200.0.0/16")}
	s, l := newSettings(t, func(o *Options) { o.LocalPodCIDRs = pods })
	out := s.Remapper("shop", host.Outgoing)
	mapped := func(address string) string {
		to, ok := out(address)
		if !ok {
			return "none"
		}
		return to
	}
	assert.Equal(t, "10.200.0.7", mapped("10.200.0.7"), "the provider itself remaps pods")
	assert.Equal(t, "none", mapped("192.0.2.1"), "it has no mapping yet")
	require.NoError(t, s.IPs.Put(ip("shop", "external", "192.0.2.1", "10.71.0.1", nil)))
	assert.Equal(t, []string{"addresses of shop"}, l.take())
	assert.Equal(t, "10.71.0.1", mapped("192.0.2.1"))
	to, ok := s.Remapper("other", host.Outgoing)("192.0.2.1")
	assert.False(t, ok, "%s is of another namespace", to)
	assert.Equal(t, "0.0.0.0/0", mapped("0.0.0.0/0"))
	assert.Equal(t, "none", mapped("10.200.0.0/24"), "this cluster does not know how the provider remaps its pods")
	assert.Equal(t, "none", mapped("no/block"))
}
