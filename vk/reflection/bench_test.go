// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/refract-project/refract/vk/reflection"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/plugins"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

const benchPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: u, resourceVersion: "7", labels: {app: web, liqo.io/shadowPod: "true"}, annotations: {note: hello}}
spec:
  nodeName: milan
  serviceAccountName: default
  restartPolicy: Always
  nodeSelector: {liqo.io/type: virtual-node}
  containers:
  - {name: web, image: "web:1", env: [{name: A, value: a}, {name: B, value: b}], ports: [{containerPort: 80}], resources: {requests: {cpu: 100m, memory: 64Mi}},
     volumeMounts: [{name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}
  volumes:
  - {name: token, projected: {sources: [{serviceAccountToken: {path: token}}, {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}]}}
  tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}, {key: virtual-node.liqo.io/not-allowed, operator: Exists}]
status: {phase: Running, hostIP: 10.9.8.7, hostIPs: [{ip: 10.9.8.7}], podIP: 10.245.0.9, podIPs: [{ip: 10.245.0.9}], qosClass: Burstable, conditions: [{type: Ready, status: "True"}, {type: ContainersReady, status: "True"}, {type: PodScheduled, status: "True"}],
  containerStatuses: [{name: web, image: "web:1", imageID: x, ready: true, restartCount: 0, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]}`

// BenchmarkUnchanged measures the evaluation of an object that is already up to date, which is the most frequent case.
func BenchmarkUnchanged(b *testing.B) {
	m := benchManager(b)
	many := parsed(b, slice("web", "web", "10.1.2.3"))
	endpoints := make([]any, 1000)
	for i := range endpoints {
		endpoints[i] = map[string]any{"addresses": []any{fmt.Sprintf("10.1.%d.%d", i/250, i%250)}, "conditions": map[string]any{"ready": true}, "nodeName": "worker-1"}
	}
	many.Object["endpoints"] = endpoints
	for _, bench := range []struct {
		name, kind string
		object     *unstructured.Unstructured
	}{{"service", reflection.ServiceKind, parsed(b, service("web", ""))}, {"pod", reflection.PodKind, parsed(b, benchPod)}, {"endpointslice-1000", reflection.EndpointSliceKind, many}} {
		b.Run(bench.name, func(b *testing.B) { benchmarkUnchanged(b, m, bench.kind, bench.object) })
	}
}

// benchManager returns a Manager with the default plugins that is not running.
func benchManager(b *testing.B) *reflection.Manager {
	b.Helper()
	h, err := host.New(b.Context(), host.NewConfig())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close(context.Background()) })
	modules, err := source.ReadFS(plugins.FS)
	if err != nil {
		b.Fatal(err)
	}
	registry := host.NewRegistry(nil)
	const slices = "EndpointSlice.discovery.k8s.io"
	_, err = source.NewChains(b.Context(), source.ChainsConfig{Host: h, Registry: registry, Kinds: []string{reflection.PodKind, reflection.ServiceKind, slices}, Defaults: modules})
	if err != nil {
		b.Fatal(err)
	}
	m, err := reflection.New(reflection.Options{Local: &rest.Config{Host: "https://127.0.0.1:1"}, Remote: &rest.Config{Host: "https://127.0.0.1:2"}, LocalClusterID: "rome", RemoteClusterID: "milan",
		NodeName: "milan", NodeIP: "10.9.8.7", TenantNamespace: "tenant", Registry: registry})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func parsed(b *testing.B, text string) *unstructured.Unstructured {
	b.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		b.Fatal(err)
	}
	object.SetNamespace("shop")
	return object
}

// benchmarkUnchanged puts an object and its copy into the caches and evaluates it.
func benchmarkUnchanged(b *testing.B, m *reflection.Manager, kind string, local *unstructured.Unstructured) {
	env := m.Env(kind)
	s := m.Prepare(b.Context(), kind, "shop", "shop-rome")
	w := engine.NewWorker(slog.New(slog.DiscardHandler))
	if _, err := env.Mutate(b.Context(), w, host.Outgoing, "shop", local.Object, s.Context(host.Outgoing)); err != nil {
		b.Fatal(err)
	}
	x, err := env.Desired(w, s, local)
	if err != nil {
		b.Fatal(err)
	}
	if kind != reflection.EndpointSliceKind {
		x.Extra = map[string]string{engine.OriginUIDAnnotation: string(local.GetUID()), wire.OriginNamespaceAnnotation: local.GetNamespace()}
	}
	if kind == reflection.PodKind {
		remote := local.DeepCopy()
		remote.SetNamespace("shop-rome")
		if err := s.State.(*informer.Informer).Put(remote); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Put(local, x.Build(w, nil).DeepCopy()); err != nil {
		b.Fatal(err)
	}
	handler, key := m.Handler(kind), Key{Namespace: "shop", Name: "web"}
	b.ReportAllocs()
	for b.Loop() {
		w.Result = engine.Unchanged
		if err := handler.Reconcile(b.Context(), w, s, key); err != nil || w.Result != engine.Unchanged {
			b.Fatalf("%s, %v", w.Result, err)
		}
	}
}
