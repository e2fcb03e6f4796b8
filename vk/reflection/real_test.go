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
	if n := len(l.Remote.Writes(t)); n != 8 {
		t.Errorf("six Services, a slice and a pod took %d writes to the provider, want 8", n)
	}
	l.Stop()
	l.Quiet("a restart with the default plugins", func() { l.Start() })
	if again := l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web"); again.GetResourceVersion() != shadow.GetResourceVersion() {
		t.Error("the ShadowPod was written again")
	}
}
