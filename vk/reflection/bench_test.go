// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/refract-project/refract/vk/reflection"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/plugins"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
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

// benchManager returns a Manager with the default plugins. The Manager is not running.
func benchManager(b testing.TB) *reflection.Manager {
	b.Helper()
	m, _ := idleManager(b, nil)
	return m
}

// idleManager returns a Manager that is not running, and its chains. All requests of the Manager pass through wrap,
// unless it is nil.
func idleManager(b testing.TB, wrap transport.WrapperFunc) (*reflection.Manager, *source.Chains) {
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
	chains, err := source.NewChains(b.Context(), source.ChainsConfig{Host: h, Registry: registry, Kinds: []string{reflection.PodKind,
		reflection.ServiceKind, slices}, Defaults: modules})
	if err != nil {
		b.Fatal(err)
	}
	m, err := reflection.New(reflection.Options{Local: &rest.Config{Host: "https://127.0.0.1:1", WrapTransport: wrap},
		Remote: &rest.Config{Host: "https://127.0.0.1:2", WrapTransport: wrap}, LocalClusterID: "rome", RemoteClusterID: "milan",
		NodeName: "milan", NodeIP: "10.9.8.7", TenantNamespace: "tenant", Registry: registry})
	if err != nil {
		b.Fatal(err)
	}
	return m, chains
}

func parsed(b testing.TB, text string) *unstructured.Unstructured {
	b.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		b.Fatal(err)
	}
	object.SetNamespace("shop")
	return object
}

// benchmarkUnchanged adds an object and its copy to the caches and measures the evaluation of the object.
func benchmarkUnchanged(b *testing.B, m *reflection.Manager, kind string, local *unstructured.Unstructured) {
	env := m.Env(kind)
	s := m.Prepare(b.Context(), kind, "shop", "shop-rome")
	w := evaluation.NewWorker(slog.New(slog.DiscardHandler))
	if _, err := env.Mutator.Mutate(b.Context(), w, host.Outgoing, "shop", local.Object, &mutation.Input{Object: local.Object, Context: s.Context(host.Outgoing)}); err != nil {
		b.Fatal(err)
	}
	x, err := env.Copies.Desired(w, s.Namespace, local)
	if err != nil {
		b.Fatal(err)
	}
	if kind != reflection.EndpointSliceKind {
		x.Extra = map[string]string{copies.OriginUIDAnnotation: string(local.GetUID()), wire.OriginNamespaceAnnotation: local.GetNamespace()}
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
		w.Result = evaluation.Unchanged
		if err := handler.Reconcile(b.Context(), w, s, key); err != nil || w.Result != evaluation.Unchanged {
			b.Fatalf("%s, %v", w.Result, err)
		}
	}
}

// putPods puts pods and their copies into the caches.
func putPods(b testing.TB, m *reflection.Manager, number int) {
	b.Helper()
	m.OwnNode()
	s := m.Prepare(b.Context(), reflection.PodKind, "shop", "shop-rome")
	for i := range number {
		pod := parsed(b, benchPod)
		pod.SetName(fmt.Sprintf("web-%d", i))
		copied := pod.DeepCopy()
		copied.SetNamespace("shop-rome")
		if err := s.Put(pod, nil); err != nil {
			b.Fatal(err)
		}
		if err := s.State.(*informer.Informer).Put(copied); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRehearsal measures how long it takes to compare the results of the current chain and of other chains for
// one pod. The results are equal, or differ in one label. Compare the times with BenchmarkUnchanged/pod of the same
// run.
func BenchmarkRehearsal(b *testing.B) {
	const pods = 10_000
	m := benchManager(b)
	putPods(b, m, pods)
	none := reflectiontest.NewChains() // chains without the default mutations
	for name, next := range map[string]mutation.Runner{"same": m.Env(reflection.PodKind).Options().Registry, "changed": none} {
		b.Run(name, func(b *testing.B) {
			p := m.NewPreview(next, rate.NewLimiter(rate.Inf, 1))
			kinds := m.PreviewKinds(func(kind string) bool { return kind == reflection.PodKind })
			if len(kinds) != 1 || len(kinds[0].Keys) != pods {
				b.Fatal(kinds)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				compared, err := p.Compare(b.Context(), kinds[0], kinds[0].Keys[i%pods], "")
				if err != nil || compared == nil || compared.Outgoing.Differs() != (name == "changed") {
					b.Fatalf("%+v, %v", compared, err)
				}
			}
		})
	}
}
