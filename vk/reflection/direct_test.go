// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

// sliceOn is a slice with a pod of this cluster, and one on a node if one is given.
func sliceOn(name, node string) string {
	third := ""
	if node != "" {
		third = fmt.Sprintf(", {addresses: [10.2.0.9], nodeName: %s, targetRef: {kind: Pod, name: away}}", node)
	}
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.1.2.3], targetRef: {kind: Pod, name: here}}%s]`, name, third)
}

// endpointsAt checks the addresses of a copy and what it says of third clusters.
func endpointsAt(data string, want ...string) func(*unstructured.Unstructured) error {
	return func(shadow *unstructured.Unstructured) error {
		var got []string
		endpoints, _, _ := unstructured.NestedSlice(shadow.Object, "spec", "template", "endpoints")
		for _, endpoint := range endpoints {
			addresses, _, _ := unstructured.NestedStringSlice(endpoint.(map[string]any), "addresses")
			got = append(got, addresses...)
		}
		if text := strings.Join(got, " "); text != strings.Join(want, " ") {
			return fmt.Errorf("the endpoints are at %q, want %q", text, want)
		}
		return field("metadata.annotations/"+wire.DirectConnectionsDataAnnotation, data)(shadow)
	}
}

// The provider is told which endpoints of an annotated Service live in third clusters, at addresses that are not
// translated; annotating the Service, and taking that back, count at once.
func TestDirectConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t, withDefaultPlugins(t), func(o *Options) {
		o.FollowIPs = true
		o.LocalPodCIDRs, _ = ipmap.ParseRanges("--local-podcidr", []string{"10.1.0.0/16"})
	})
	l.defineIPs()
	turin := "turin-of-" + l.id
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {liqo.io/remote-cluster-id: turin}}}`, turin))
	l.local.create(t, l.namespace, service("web", ""))
	l.local.create(t, l.namespace, sliceOn("both", turin))
	l.local.create(t, l.namespace, sliceOn("own", ""))
	l.start()
	shadow := func(name, data string, addresses ...string) {
		t.Helper()
		l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, name, endpointsAt(data, addresses...))
	}
	annotate := func(value string) {
		t.Helper()
		l.local.patchYAML(t, "Service", l.namespace, "web", fmt.Sprintf(`{metadata: {annotations: {%s: %s}}}`, wire.UseDirectConnectionsAnnotation, value))
	}
	const data = `{"clusterAddresses":{"turin":["10.2.0.9"]}}`
	shadow("both", "", "10.1.2.3") // the other one has no address for the provider
	annotate(`"true"`)
	shadow("both", data, "10.1.2.3", "10.2.0.9")
	shadow("own", "", "10.1.2.3")

	annotate(`"on"`)
	shadow("both", "", "10.1.2.3")
	l.event(l.namespace, "Service", "web", "Warning", engine.PluginWarningReason, wire.UseDirectConnectionsAnnotation, `must be "true" or "false"`)
	annotate(`"true"`)
	shadow("both", data, "10.1.2.3", "10.2.0.9")
	l.settled()
	l.stop()
	l.quiet("a restart with direct connections", func() { l.start() })
	l.local.delete(t, "Node", "", turin)
	shadow("both", "", "10.1.2.3")
}

// What the provider's API server would not take is not sent.
func TestDirectConnectionsThatAreTooMuch(t *testing.T) {
	t.Parallel()
	l := newLab(t, withDefaultPlugins(t))
	turin := "turin-of-" + l.id
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {liqo.io/remote-cluster-id: turin}}}`, turin))
	l.local.create(t, l.namespace, service("web", wire.UseDirectConnectionsAnnotation+`: "true"`))
	l.local.create(t, l.namespace, strings.Replace(sliceOn("large", turin), "metadata: {", "metadata: {annotations: {note: "+strings.Repeat("x", 256<<10-10)+"}, ", 1))
	l.local.create(t, l.namespace, sliceOn("fine", turin))
	l.start()
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "fine")
	l.event(l.namespace, "EndpointSlice", "large", "Warning", engine.PluginFailedReason, wire.DirectConnectionsDataAnnotation, "shorten the others")
	l.settled()
	if l.remote.get(t, "ShadowEndpointSlice", l.remoteNS, "large") != nil {
		t.Error("the slice crossed")
	}
	l.local.patchYAML(t, "EndpointSlice", l.namespace, "large", `{metadata: {annotations: {note: short}}}`)
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "large", func(shadow *unstructured.Unstructured) error {
		if !strings.Contains(shadow.GetAnnotations()[wire.DirectConnectionsDataAnnotation], "10.2.0.9") {
			return errors.New("it says nothing of third clusters")
		}
		return nil
	})
}
