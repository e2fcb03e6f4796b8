// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

func slice(name, service, address string) string {
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
endpoints: [{addresses: [%s], conditions: {ready: true, serving: true, terminating: false}}]
ports: [{name: http, port: 80, protocol: TCP}]`, name, service, address)
}

func TestEndpointSliceMatrix(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	shadow := func(name, labels string) string {
		return fmt.Sprintf(`{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowEndpointSlice, metadata: {name: %s, labels: {%s}, finalizers: [example.com/theirs]}, spec: {template: {addressType: IPv4}}}`, name, labels)
	}
	l.Local.Create(t, l.Namespace, service("skipped", `liqo.io/skip-reflection: "true"`))
	l.Local.Create(t, l.Namespace, service("plain", ""))
	for name, service := range map[string]string{"new": "plain", "stale": "plain", "taken": "plain", "of-skipped": "skipped"} {
		l.Local.Create(t, l.Namespace, slice(name, service, "10.1.2.3"))
	}
	l.Local.Create(t, l.Namespace, slice("insists", "skipped", "10.1.2.3"))
	l.Local.PatchYAML(t, "EndpointSlice", l.Namespace, "insists", `{metadata: {annotations: {liqo.io/allow-reflection: "true"}}}`)
	l.Local.Create(t, l.Namespace, slice("both", "plain", "10.1.2.3"))
	l.Local.PatchYAML(t, "EndpointSlice", l.Namespace, "both", `{metadata: {annotations: {liqo.io/allow-reflection: "true", liqo.io/skip-reflection: "true"}}}`)
	l.Remote.Create(t, l.RemoteNS, shadow("stale", l.Owned()+", stale: yes-it-is"))
	l.Remote.Create(t, l.RemoteNS, shadow("taken", "whose: theirs"))
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(`{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowEndpointSlice, metadata: {name: deleted-while-down, labels: {%s}}, spec: {}}`, l.Owned()))
	l.Start()

	for _, name := range []string{"new", "stale", "insists"} {
		l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, name, reflectiontest.Field("spec.template.addressType", "IPv4"),
			reflectiontest.Field("metadata.labels/endpointslice.kubernetes.io/managed-by", "endpointslice.reflection.liqo.io"), reflectiontest.Field("metadata.labels/stale", ""),
			reflectiontest.Field("spec.template.endpoints", "[map[addresses:[10.1.2.3] conditions:map[ready:true serving:true terminating:false]]]"))
	}
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "stale", reflectiontest.Field("metadata.finalizers", "[example.com/theirs]"))
	l.Absent(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "deleted-while-down")
	l.Event(l.Namespace, "EndpointSlice", "taken", "Warning", "FailedReflection")
	l.Event(l.Namespace, "EndpointSlice", "both", "Warning", "InvalidObject", "both set")
	l.Settled()
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "taken", reflectiontest.Field("metadata.labels/whose", "theirs"), reflectiontest.Field("spec.template.endpoints", ""))
	for _, name := range []string{"of-skipped", "both"} {
		if l.Remote.Get(t, "ShadowEndpointSlice", l.RemoteNS, name) != nil {
			t.Errorf("slice %s crossed", name)
		}
	}
	// The annotation of the Service must decide, even if it changes later.
	l.Local.PatchYAML(t, "Service", l.Namespace, "skipped", `{metadata: {annotations: {liqo.io/skip-reflection: null}}}`)
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "of-skipped")
	l.Local.PatchYAML(t, "Service", l.Namespace, "plain", `{metadata: {annotations: {liqo.io/skip-reflection: "true"}}}`)
	l.Absent(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "new")
	l.Remote.PatchYAML(t, "ShadowEndpointSlice", l.RemoteNS, "stale", `{metadata: {finalizers: null}}`)
	l.Remote.PatchYAML(t, "ShadowEndpointSlice", l.RemoteNS, "taken", `{metadata: {finalizers: null}}`)
}

// TestSlicesFollowNodes checks that the chain omits endpoints on nodes that represent the provider, including nodes
// that are added later.
func TestSlicesFollowNodes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Chains.Swap("EndpointSlice.discovery.k8s.io", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		nodes, _ := env.Context["virtualNodes"].(map[string]any)
		return &host.Outcome{}, doc.SetString("metadata.annotations.late", fmt.Sprint(nodes["late-of-"+l.ID]))
	})
	l.Local.Create(t, l.Namespace, slice("web", "web", "10.1.2.3"))
	l.Start()
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/late", "<nil>"))
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: late-of-%s, labels: {liqo.io/remote-cluster-id: turin}}}`, l.ID))
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/late", "turin"))
	l.Local.Delete(t, "Node", "", "late-of-"+l.ID)
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/late", "<nil>"))
}
