// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/plugins"
)

// withDefaultPlugins runs the lab with the plugins that are shipped.
func withDefaultPlugins(t *testing.T) func(*Options) {
	t.Helper()
	h := must(host.New(t.Context(), host.NewConfig()))(t)
	registry := host.NewRegistry(nil)
	var keys []string
	for _, kind := range DefaultKinds() {
		if !kind.NoChain {
			keys = append(keys, kind.Chain())
		}
	}
	chains := must(source.NewChains(t.Context(), source.ChainsConfig{Host: h, Registry: registry, Kinds: keys,
		Defaults: must(source.ReadFS(plugins.FS))(t)}))(t)
	t.Cleanup(func() {
		_ = chains.Close(context.Background())
		_ = h.Close(context.Background())
	})
	return func(o *Options) { o.Registry = registry }
}

// With the default plugins: every type of Service crosses, is right at once, and stays untouched by restarts; so are
// slices and pods, whose status comes back with what this side must not see left out.
func TestDefaultPlugins(t *testing.T) {
	t.Parallel()
	l := newLab(t, withDefaultPlugins(t))
	for name, spec := range map[string]string{
		"cluster-ip":  `{selector: {app: a}, ports: [{name: http, port: 80, targetPort: web, appProtocol: http}]}`,
		"headless":    `{clusterIP: None, selector: {app: a}, ports: [{port: 80}], publishNotReadyAddresses: true}`,
		"node-port":   `{type: NodePort, selector: {app: a}, ports: [{name: tcp, port: 80}, {name: udp, port: 53, protocol: UDP}], externalTrafficPolicy: Local}`,
		"balanced":    `{type: LoadBalancer, selector: {app: a}, ports: [{port: 80}], externalTrafficPolicy: Local, loadBalancerSourceRanges: [10.0.0.0/8], loadBalancerClass: example.com/lb}`,
		"external":    `{type: ExternalName, externalName: example.com}`,
		"external-ip": `{selector: {app: a}, ports: [{port: 80}], externalIPs: [192.0.2.1], externalTrafficPolicy: Cluster, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}, trafficDistribution: PreferClose}`,
	} {
		l.local.create(t, l.namespace, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: %s}", name, spec))
	}
	l.local.create(t, l.namespace, slice("own", "cluster-ip", "10.1.2.3"))
	l.pod("web")
	l.start()
	for _, name := range []string{"cluster-ip", "headless", "node-port", "balanced", "external", "external-ip"} {
		l.present(l.remote, "Service", l.remoteNS, name)
	}
	l.present(l.remote, "Service", l.remoteNS, "headless", field("spec.clusterIP", "None"))
	l.present(l.remote, "ShadowEndpointSlice", l.remoteNS, "own", func(o *unstructured.Unstructured) error {
		endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "endpoints")
		if len(endpoints) != 1 {
			return fmt.Errorf("endpoints are %v", endpoints)
		}
		return field("addresses", "[10.1.2.3]")(&unstructured.Unstructured{Object: endpoints[0].(map[string]any)})
	})
	shadow := l.present(l.remote, "ShadowPod", l.remoteNS, "web", field("spec.pod.nodeName", ""), field("metadata.labels/app", "web"))
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"), field("status.hostIP", "10.9.8.7"), field("status.podIP", "10.245.0.9"))
	l.settled()
	for _, writes := range l.remote.writes(t) {
		t.Log(writes)
	}
	if n := len(l.remote.writes(t)); n != 8 {
		t.Errorf("six Services, a slice and a pod took %d writes to the provider, want 8", n)
	}
	l.stop()
	l.quiet("a restart with the default plugins", func() { l.start() })
	if again := l.remote.get(t, "ShadowPod", l.remoteNS, "web"); again.GetResourceVersion() != shadow.GetResourceVersion() {
		t.Error("the ShadowPod was written again")
	}
}
