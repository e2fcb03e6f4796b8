// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
)

// sliceOn returns an EndpointSlice with the endpoint of a pod of this cluster and, if node is set, the endpoint of a
// pod on that node.
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

// endpointsAt returns a check that a copy has exactly the given addresses, and the given value of the annotation
// about third clusters.
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
		return reflectiontest.Field("metadata.annotations/"+wire.DirectConnectionsDataAnnotation, data)(shadow)
	}
}

// TestDirectConnections checks that the provider gets the endpoints of an annotated Service that are in third
// clusters. The addresses must not be translated. Adding or removing the annotation must have an effect at once.
func TestDirectConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
		o.FollowIPs = true
		o.LocalPodCIDRs, _ = ipmap.ParseRanges("--local-podcidr", []string{"10.1.0.0/16"})
	})
	l.defineIPs()
	turin := "turin-of-" + l.ID
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {liqo.io/remote-cluster-id: turin}}}`, turin))
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Local.Create(t, l.Namespace, sliceOn("both", turin))
	l.Local.Create(t, l.Namespace, sliceOn("own", ""))
	l.Start()
	shadow := func(name, data string, addresses ...string) {
		t.Helper()
		l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, name, endpointsAt(data, addresses...))
	}
	annotate := func(value string) {
		t.Helper()
		l.Local.PatchYAML(t, "Service", l.Namespace, "web", fmt.Sprintf(`{metadata: {annotations: {%s: %s}}}`, wire.UseDirectConnectionsAnnotation, value))
	}
	const data = `{"clusterAddresses":{"turin":["10.2.0.9"]}}`
	// The copy must have only one endpoint, because the address of the other endpoint cannot be translated for the
	// provider.
	shadow("both", "", "10.1.2.3")
	annotate(`"true"`)
	shadow("both", data, "10.1.2.3", "10.2.0.9")
	shadow("own", "", "10.1.2.3")

	annotate(`"on"`)
	shadow("both", "", "10.1.2.3")
	l.Event(l.Namespace, "Service", "web", "Warning", failure.PluginWarningReason, wire.UseDirectConnectionsAnnotation, `use "true" or "false"`)
	annotate(`"true"`)
	shadow("both", data, "10.1.2.3", "10.2.0.9")
	l.Settled()
	l.Stop()
	l.Quiet("a restart with direct connections", func() { l.Start() })
	l.Local.Delete(t, "Node", "", turin)
	shadow("both", "", "10.1.2.3")
}

// TestDirectConnectionsThatAreTooMuch checks that the annotation about third clusters is not written if it exceeds
// the limit of the provider's API server.
func TestDirectConnectionsThatAreTooMuch(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t))
	turin := "turin-of-" + l.ID
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {liqo.io/remote-cluster-id: turin}}}`, turin))
	l.Local.Create(t, l.Namespace, service("web", wire.UseDirectConnectionsAnnotation+`: "true"`))
	l.Local.Create(t, l.Namespace, strings.Replace(sliceOn("large", turin), "metadata: {", "metadata: {annotations: {note: "+strings.Repeat("x", 256<<10-10)+"}, ", 1))
	l.Local.Create(t, l.Namespace, sliceOn("fine", turin))
	l.Start()
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "fine")
	l.Event(l.Namespace, "EndpointSlice", "large", "Warning", failure.PluginFailedReason, wire.DirectConnectionsDataAnnotation, "shorten the others")
	l.Settled()
	if l.Remote.Get(t, "ShadowEndpointSlice", l.RemoteNS, "large") != nil {
		t.Error("the slice crossed")
	}
	l.Local.PatchYAML(t, "EndpointSlice", l.Namespace, "large", `{metadata: {annotations: {note: short}}}`)
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "large", func(shadow *unstructured.Unstructured) error {
		if !strings.Contains(shadow.GetAnnotations()[wire.DirectConnectionsDataAnnotation], "10.2.0.9") {
			return errors.New("it says nothing of third clusters")
		}
		return nil
	})
}
