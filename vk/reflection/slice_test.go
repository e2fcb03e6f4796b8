// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"

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
	l.local.create(t, l.namespace, service("skipped", `liqo.io/skip-reflection: "true"`))
	l.local.create(t, l.namespace, service("plain", ""))
	for name, service := range map[string]string{"new": "plain", "stale": "plain", "taken": "plain", "of-skipped": "skipped"} {
		l.local.create(t, l.namespace, slice(name, service, "10.1.2.3"))
	}
	l.local.create(t, l.namespace, slice("insists", "skipped", "10.1.2.3"))
	l.local.patchYAML(t, "EndpointSlice", l.namespace, "insists", `{metadata: {annotations: {liqo.io/allow-reflection: "true"}}}`)
	l.local.create(t, l.namespace, slice("both", "plain", "10.1.2.3"))
	l.local.patchYAML(t, "EndpointSlice", l.namespace, "both", `{metadata: {annotations: {liqo.io/allow-reflection: "true", liqo.io/skip-reflection: "true"}}}`)
	l.remote.create(t, l.remoteNS, shadow("stale", l.owned()+", stale: yes-it-is"))
	l.remote.create(t, l.remoteNS, shadow("taken", "whose: theirs"))
	l.remote.create(t, l.remoteNS, fmt.Sprintf(`{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowEndpointSlice, metadata: {name: deleted-while-down, labels: {%s}}, spec: {}}`, l.owned()))
	l.start()

	for _, name := range []string{"new", "stale", "insists"} {
		l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, name, field("spec.template.addressType", "IPv4"),
			field("metadata.labels/endpointslice.kubernetes.io/managed-by", "endpointslice.reflection.liqo.io"), field("metadata.labels/stale", ""),
			field("spec.template.endpoints", "[map[addresses:[10.1.2.3] conditions:map[ready:true serving:true terminating:false]]]"))
	}
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "stale", field("metadata.finalizers", "[example.com/theirs]"))
	l.absent(l.remote, "ShadowEndpointSlice", l.remoteNS, "deleted-while-down")
	l.event(l.namespace, "EndpointSlice", "taken", "Warning", "FailedReflection")
	l.event(l.namespace, "EndpointSlice", "both", "Warning", "InvalidObject", "both set")
	l.settled()
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "taken", field("metadata.labels/whose", "theirs"), field("spec.template.endpoints", ""))
	for _, name := range []string{"of-skipped", "both"} {
		if l.remote.get(t, "ShadowEndpointSlice", l.remoteNS, name) != nil {
			t.Errorf("slice %s crossed", name)
		}
	}
	// The annotation of the Service decides, also later.
	l.local.patchYAML(t, "Service", l.namespace, "skipped", `{metadata: {annotations: {liqo.io/skip-reflection: null}}}`)
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "of-skipped")
	l.local.patchYAML(t, "Service", l.namespace, "plain", `{metadata: {annotations: {liqo.io/skip-reflection: "true"}}}`)
	l.absent(l.remote, "ShadowEndpointSlice", l.remoteNS, "new")
	l.remote.patchYAML(t, "ShadowEndpointSlice", l.remoteNS, "stale", `{metadata: {finalizers: null}}`)
	l.remote.patchYAML(t, "ShadowEndpointSlice", l.remoteNS, "taken", `{metadata: {finalizers: null}}`)
}

// Endpoints on a node of the provider are left out by the chain; nodes that come later count too.
func TestSlicesFollowNodes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.chains.swap("EndpointSlice.discovery.k8s.io", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		nodes, _ := env.Context["virtualNodes"].(map[string]any)
		return &host.Outcome{}, doc.SetString("metadata.annotations.late", fmt.Sprint(nodes["late-of-"+l.id]))
	})
	l.local.create(t, l.namespace, slice("web", "web", "10.1.2.3"))
	l.start()
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "web", field("metadata.annotations/late", "<nil>"))
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: late-of-%s, labels: {liqo.io/remote-cluster-id: turin}}}`, l.id))
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "web", field("metadata.annotations/late", "turin"))
	l.local.delete(t, "Node", "", "late-of-"+l.id)
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "web", field("metadata.annotations/late", "<nil>"))
}
