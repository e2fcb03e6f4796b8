// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDefaultPlugins checks with the default plugins that every type of Service, slices and pods are each reflected
// with one write, and that a restart causes no writes. The status of a pod must be shown without the parts that must
// not be visible in this cluster.
func TestDefaultPlugins(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t))
	for name, spec := range map[string]string{
		"cluster-ip":  `{selector: {app: a}, ports: [{name: http, port: 80, targetPort: web, appProtocol: http}]}`,
		"headless":    `{clusterIP: None, selector: {app: a}, ports: [{port: 80}], publishNotReadyAddresses: true}`,
		"node-port":   `{type: NodePort, selector: {app: a}, ports: [{name: tcp, port: 80}, {name: udp, port: 53, protocol: UDP}], externalTrafficPolicy: Local}`,
		"balanced":    `{type: LoadBalancer, selector: {app: a}, ports: [{port: 80}], externalTrafficPolicy: Local, loadBalancerSourceRanges: [10.0.0.0/8], loadBalancerClass: example.com/lb}`,
		"external":    `{type: ExternalName, externalName: example.com}`,
		"external-ip": `{selector: {app: a}, ports: [{port: 80}], externalIPs: [192.0.2.1], externalTrafficPolicy: Cluster, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}, trafficDistribution: PreferClose}`,
	} {
		l.Local.Create(t, l.Namespace, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: %s}", name, spec))
	}
	l.Local.Create(t, l.Namespace, slice("own", "cluster-ip", "10.1.2.3"))
	l.Pod("web")
	l.Start()
	for _, name := range []string{"cluster-ip", "headless", "node-port", "balanced", "external", "external-ip"} {
		l.Present(l.Remote, "Service", l.RemoteNS, name)
	}
	l.Present(l.Remote, "Service", l.RemoteNS, "headless", reflectiontest.Field("spec.clusterIP", "None"))
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "own", func(o *unstructured.Unstructured) error {
		endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "endpoints")
		if len(endpoints) != 1 {
			return fmt.Errorf("endpoints are %v", endpoints)
		}
		return reflectiontest.Field("addresses", "[10.1.2.3]")(&unstructured.Unstructured{Object: endpoints[0].(map[string]any)})
	})
	shadow := l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("spec.pod.nodeName", ""), reflectiontest.Field("metadata.labels/app", "web"))
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), reflectiontest.Field("status.hostIP", "10.9.8.7"), reflectiontest.Field("status.podIP", "10.245.0.9"))
	l.Settled()
	for _, writes := range l.Remote.Writes(t) {
		t.Log(writes)
	}
	// The control plane creates a slice for each of the five Services with selectors.
	if n := len(l.Remote.Writes(t)); n != 13 {
		t.Errorf("six Services, six slices and a pod took %d writes to the provider, want 13", n)
	}
	l.Stop()
	l.Quiet("a restart with the default plugins", func() { l.Start() })
	if again := l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web"); again.GetResourceVersion() != shadow.GetResourceVersion() {
		t.Error("the ShadowPod was written again")
	}
}

// TestSlicesWithoutEndpoints checks that a slice keeps its copy when it has no endpoints for the provider, because it
// is empty or because its pods run there.
func TestSlicesWithoutEndpoints(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t))
	l.Local.Create(t, l.Namespace, slice("moves", "web", "10.1.2.3"))
	l.Local.Create(t, l.Namespace, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: empty, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [], ports: []}`)
	l.Start()
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "empty", reflectiontest.Field("spec.template.addressType", "IPv4"), withEndpoints(0))
	copied := l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "moves", withEndpoints(1))
	l.Local.PatchYAML(t, "EndpointSlice", l.Namespace, "moves", fmt.Sprintf(`{endpoints: [{addresses: [10.1.2.4], nodeName: %s}]}`, l.Node))
	moved := l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "moves", withEndpoints(0))
	if moved.GetUID() != copied.GetUID() {
		t.Error("the copy was deleted and created again")
	}
	l.Quiet("another pod on the provider", func() {
		l.Local.PatchYAML(t, "EndpointSlice", l.Namespace, "moves", fmt.Sprintf(`{endpoints: [{addresses: [10.1.2.5], nodeName: %s}]}`, l.Node))
	})
}

// withEndpoints checks the number of endpoints of a ShadowEndpointSlice.
func withEndpoints(n int) func(*unstructured.Unstructured) error {
	return func(shadow *unstructured.Unstructured) error {
		endpoints, _, err := unstructured.NestedSlice(shadow.Object, "spec", "template", "endpoints")
		if err == nil && len(endpoints) != n {
			err = fmt.Errorf("%d endpoints instead of %d: %v", len(endpoints), n, endpoints)
		}
		return err
	}
}
