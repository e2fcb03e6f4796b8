// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/internal/guest"
	"github.com/refract-project/refract/plugins"
)

// BenchmarkHost runs whole chains, including the guard, as a reconciler does: the document is reset to the cached
// object, and the chain runs. The time to build the result is measured in host/document. The variants …-native make
// the same changes to a deep copy in Go, and the variants …-bare run without fuel. noop-engine measures only the
// engine's call of an exported function. noop adds refueling and opening the document. noop-chain adds the instance
// pool (two atomic operations), the reset of the document and the guard.
func BenchmarkHost(b *testing.B) {
	h := newHost(b)
	service := mustLoad(b, h, "service", defaultModule(b, "Service"), PluginConfig{})
	bare := mustLoad(b, h, "service", defaultModule(b, "Service"), PluginConfig{unmetered: true})
	b.Run("noop-engine", func(b *testing.B) { benchEngine(b, mustLoad(b, h, "noop", noop, PluginConfig{unmetered: true})) })
	b.Run("noop", func(b *testing.B) { benchCall(b, mustLoad(b, h, "noop", noop, PluginConfig{})) })
	b.Run("noop-chain", func(b *testing.B) {
		benchChain(b, serviceObject(), "Service", mustLoad(b, h, "noop", noop, PluginConfig{}))
	})
	b.Run("service", func(b *testing.B) { benchChain(b, plainService(), "Service", service) })
	b.Run("service-bare", func(b *testing.B) { benchChain(b, plainService(), "Service", bare) })
	b.Run("service-native", func(b *testing.B) { benchNative(b, plainService(), nativeService) })
	b.Run("service-loadbalancer", func(b *testing.B) { benchChain(b, serviceObject(), "Service", service) })
	b.Run("service-loadbalancer-native", func(b *testing.B) { benchNative(b, serviceObject(), nativeService) })
	b.Run("service-200k", func(b *testing.B) { benchChain(b, bigService(), "Service", service) })
	b.Run("pod", func(b *testing.B) {
		benchChain(b, podObject(), "Pod", mustLoad(b, h, "pod", defaultModule(b, "Pod"), PluginConfig{}))
	})
	b.Run("pod-bare", func(b *testing.B) {
		benchChain(b, podObject(), "Pod", mustLoad(b, h, "pod", defaultModule(b, "Pod"), PluginConfig{unmetered: true}))
	})
	b.Run("pod-native", func(b *testing.B) { benchNative(b, podObject(), nativePod) })
	b.Run("endpointslice-1000", func(b *testing.B) {
		benchChain(b, sliceObject(1000), "EndpointSlice", mustLoad(b, h, "endpointslice", defaultModule(b, "EndpointSlice"), PluginConfig{}))
	})
	b.Run("service-domains", func(b *testing.B) { benchDomains(b, service, "shop", "bank") })
	b.Run("service-fresh", func(b *testing.B) {
		benchDomains(b, mustLoad(b, h, "service", defaultModule(b, "Service"), PluginConfig{Fresh: true}), "shop")
	})
	b.Run("chain-5", func(b *testing.B) {
		benchChain(b, plainService(), "Service", service, service, service, service, service)
	})
}

// BenchmarkSecondPlugin reports the cost of a second plugin that does nothing, on the chain of a default plugin (extra-ns). Short blocks
// of runs with and without it alternate, because the speed of a machine changes more within a second than the plugin costs.
func BenchmarkSecondPlugin(b *testing.B) {
	h := newHost(b)
	empty := mustLoad(b, h, "noop", noop, PluginConfig{})
	for kind, object := range map[string]map[string]any{"Service": plainService(), "Pod": podObject()} {
		b.Run("second-"+strings.ToLower(kind), func(b *testing.B) {
			first := mustLoad(b, h, strings.ToLower(kind), defaultModule(b, kind), PluginConfig{})
			one, two := newBenchRun(b, object, kind, first), newBenchRun(b, object, kind, first, empty)
			runs, isSwapped := []func(){one, two}, false
			const block = 50
			var extra []float64
			b.ReportAllocs()
			for b.Loop() {
				var took [2]time.Duration
				for i := range runs {
					if isSwapped {
						i = len(runs) - 1 - i
					}
					begun := time.Now()
					for range block {
						runs[i]()
					}
					took[i] = time.Since(begun)
				}
				isSwapped = !isSwapped
				extra = append(extra, float64(took[1]-took[0])/block)
			}
			slices.Sort(extra)
			b.ReportMetric(extra[len(extra)/2], "extra-ns")
		})
	}
}

func newHost(tb testing.TB) *Host {
	tb.Helper()
	h, err := New(context.Background(), NewConfig().WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = h.Close(context.Background()) })
	return h
}

func mustLoad(tb testing.TB, h *Host, name string, wasm []byte, pc PluginConfig) *Plugin {
	tb.Helper()
	p, err := h.Load(context.Background(), name, wasm, pc)
	require.NoError(tb, err)
	return p
}

func defaultModule(tb testing.TB, kind string) []byte {
	_, wasm := plugins.Default(kind)
	if wasm == nil {
		tb.Fatalf("there is no default plugin for %s", kind)
	}
	return wasm
}

func benchChain(b *testing.B, object map[string]any, kind string, list ...*Plugin) {
	run := newBenchRun(b, object, kind, list...)
	b.ReportAllocs()
	defer cpuPerOp(b)()
	for b.Loop() {
		run()
	}
}

// newBenchRun returns a function that runs a chain on an object. It has already run some times.
func newBenchRun(b *testing.B, object map[string]any, kind string, list ...*Plugin) func() {
	chain, err := NewChain(Outgoing, DefaultGuard(kind), list...)
	if err != nil {
		b.Fatal(err)
	}
	doc, env, ctx := document.New(), &Env{Context: benchContext(), RemapIP: identityIP, Domain: "shop"}, context.Background()
	run := func() {
		doc.Reset(object)
		if _, err := chain.Run(ctx, doc, env); err != nil {
			b.Fatal(err)
		}
	}
	for range 10 {
		run()
	}
	return run
}

// benchDomains runs a plugin on objects that belong to alternating domains.
func benchDomains(b *testing.B, p *Plugin, domains ...string) {
	chain, err := NewChain(Outgoing, DefaultGuard("Service"), p)
	if err != nil {
		b.Fatal(err)
	}
	doc, env, ctx := document.New(), &Env{Context: benchContext(), RemapIP: identityIP}, context.Background()
	object, n := plainService(), 0
	b.ReportAllocs()
	defer cpuPerOp(b)()
	for b.Loop() {
		env.Domain = domains[n%len(domains)]
		n++
		doc.Reset(object)
		_, err = chain.Run(ctx, doc, env)
		if err != nil {
			b.Fatal(err)
		}
	}
}

// benchEngine measures only the engine's call of an exported function.
func benchEngine(b *testing.B, p *Plugin) {
	ctx := context.Background()
	mod, err := p.module.Runtime.InstantiateModule(ctx, p.module.Compiled, wazero.NewModuleConfig().WithName(""))
	if err != nil {
		b.Fatal(err)
	}
	hook, stack := mod.ExportedFunction(Outgoing.String()), make([]uint64, 1)
	b.ReportAllocs()
	defer cpuPerOp(b)()
	for b.Loop() {
		if err := hook.CallWithStack(ctx, stack); err != nil {
			b.Fatal(err)
		}
	}
}

func benchCall(b *testing.B, p *Plugin) {
	i, err := p.takeInstance(context.Background(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer p.releaseInstance(i)
	doc, env := document.New(), &guest.Env{}
	doc.Reset(serviceObject())
	b.ReportAllocs()
	defer cpuPerOp(b)()
	for b.Loop() {
		if err := i.RunHook(Outgoing, doc, env); err != nil {
			b.Fatal(err)
		}
	}
}

// cpuPerOp returns a function that reports the processor time per operation. Other work on the machine distorts the
// processor time less than the wall-clock time (ns/op).
func cpuPerOp(b *testing.B) func() {
	start := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func identityIP(ip string) (string, bool) { return ip, true }

func benchNative(b *testing.B, object map[string]any, mutate func(object, context map[string]any)) {
	c := benchContext()
	b.ReportAllocs()
	defer cpuPerOp(b)()
	for b.Loop() {
		mutate(runtime.DeepCopyJSON(object), c)
	}
}

func benchContext() map[string]any {
	return map[string]any{
		"hook": "outgoing", "localClusterID": "rome", "remoteClusterID": "milan",
		"localNamespace": "shop", "remoteNamespace": "shop-rome", "nodeName": "milan", "nodeIP": "10.0.0.9",
		"apiServerSupport": "Disabled",
		"offloadingPatch": map[string]any{
			"labelsNotReflected": []any{"vendor.example.com/*"}, "annotationsNotReflected": []any{"vendor.example.com/*"},
		},
		"virtualNodes": map[string]any{"milan": "milan"},
	}
}

func serviceObject() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{
			"name": "frontend", "namespace": "shop", "uid": "7b6c", "resourceVersion": "812",
			"labels":      map[string]any{"app": "shop", "tier": "frontend", "vendor.example.com/cost": "7"},
			"annotations": map[string]any{"note": "front door"},
		},
		"spec": map[string]any{
			"type": "LoadBalancer", "clusterIP": "10.96.4.2", "clusterIPs": []any{"10.96.4.2"},
			"ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
			"internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
			"ports": []any{
				map[string]any{"name": "http", "port": int64(80), "targetPort": int64(8080), "nodePort": int64(30080), "protocol": "TCP"},
				map[string]any{"name": "https", "port": int64(443), "targetPort": int64(8443), "nodePort": int64(30443), "protocol": "TCP"},
			},
			"selector": map[string]any{"app": "shop", "tier": "frontend"},
		},
		"status": map[string]any{"loadBalancer": map[string]any{}},
	}
}

// plainService returns an ordinary Service. serviceObject returns a Service with more fields to remove, such as node
// ports and vendor labels.
func plainService() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{
			"name": "backend", "namespace": "shop", "uid": "51d0", "resourceVersion": "77",
			"labels": map[string]any{"app": "shop"}, "annotations": map[string]any{"big": "x"},
		},
		"spec": map[string]any{
			"type": "ClusterIP", "clusterIP": "10.96.4.3", "clusterIPs": []any{"10.96.4.3"},
			"ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
			"ports":    []any{map[string]any{"port": int64(80), "targetPort": int64(8080), "protocol": "TCP"}},
			"selector": map[string]any{"app": "shop"},
		},
		"status": map[string]any{"loadBalancer": map[string]any{}},
	}
}

// bigService returns plainService with a large annotation.
func bigService() map[string]any {
	o := plainService()
	o["metadata"].(map[string]any)["annotations"] = map[string]any{"big": strings.Repeat("x", 200_000)}
	return o
}

func nativeMetadata(o, c map[string]any) {
	meta := o["metadata"].(map[string]any)
	patch := c["offloadingPatch"].(map[string]any)
	for field, globs := range map[string]any{"labels": patch["labelsNotReflected"], "annotations": patch["annotationsNotReflected"]} {
		m, _ := meta[field].(map[string]any)
		for k := range m {
			for _, g := range globs.([]any) {
				if document.Match(g.(string), k) {
					delete(m, k)
				}
			}
		}
	}
}

func nativeService(o, c map[string]any) {
	nativeMetadata(o, c)
	spec := o["spec"].(map[string]any)
	for _, k := range []string{"clusterIP", "clusterIPs", "loadBalancerIP", "loadBalancerClass", "healthCheckNodePort", "ipFamilies"} {
		delete(spec, k)
	}
	for _, p := range spec["ports"].([]any) {
		delete(p.(map[string]any), "nodePort")
	}
}

// podObject returns a pod of a Deployment with its token volume, defaults and status.
func podObject() map[string]any {
	mount := map[string]any{"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}
	container := func(name string) map[string]any {
		return map[string]any{
			"name": name, "image": "registry.example.com/shop/" + name + ":1.4.2", "imagePullPolicy": "IfNotPresent",
			"ports":                  []any{map[string]any{"containerPort": int64(8080), "name": "http", "protocol": "TCP"}},
			"env":                    []any{map[string]any{"name": "MODE", "value": "production"}, map[string]any{"name": "POD_IP", "valueFrom": map[string]any{"fieldRef": map[string]any{"apiVersion": "v1", "fieldPath": "status.podIP"}}}},
			"resources":              map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "128Mi"}, "limits": map[string]any{"memory": "256Mi"}},
			"volumeMounts":           []any{map[string]any{"name": "config", "mountPath": "/etc/shop"}, mount},
			"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
			"readinessProbe": map[string]any{"httpGet": map[string]any{"path": "/healthz", "port": int64(8080), "scheme": "HTTP"}, "periodSeconds": int64(10)},
		}
	}
	toleration := func(key string) map[string]any {
		return map[string]any{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": int64(300)}
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": "frontend-7d4b9c-x2x9z", "generateName": "frontend-7d4b9c-", "namespace": "shop", "uid": "9f1c", "resourceVersion": "9001",
			"labels":          map[string]any{"app": "shop", "pod-template-hash": "7d4b9c", "vendor.example.com/cost": "7"},
			"annotations":     map[string]any{"vendor.example.com/trace": "on", "prometheus.io/scrape": "true"},
			"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "frontend-7d4b9c", "uid": "77", "controller": true}},
		},
		"spec": map[string]any{
			"containers": []any{container("web"), container("proxy")}, "nodeName": "milan", "restartPolicy": "Always",
			"serviceAccountName": "default", "serviceAccount": "default", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
			"priority": int64(0), "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "terminationGracePeriodSeconds": int64(30),
			"tolerations": []any{toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")},
			"affinity":    map[string]any{"nodeAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{"nodeSelectorTerms": []any{map[string]any{}}}}},
			"volumes": []any{
				map[string]any{"name": "config", "configMap": map[string]any{"name": "shop", "defaultMode": int64(420)}},
				map[string]any{"name": "kube-api-access-x7k2p", "projected": map[string]any{"defaultMode": int64(420), "sources": []any{
					map[string]any{"serviceAccountToken": map[string]any{"expirationSeconds": int64(3607), "path": "token"}},
					map[string]any{"configMap": map[string]any{"name": "kube-root-ca.crt", "items": []any{map[string]any{"key": "ca.crt", "path": "ca.crt"}}}},
				}}},
			},
		},
		"status": map[string]any{"phase": "Pending", "qosClass": "Burstable"},
	}
}

// nativePod makes about the same changes to a pod as the default plugin.
func nativePod(o, c map[string]any) {
	nativeMetadata(o, c)
	spec := o["spec"].(map[string]any)
	for _, k := range []string{"nodeName", "nodeSelector", "affinity", "tolerations", "priority", "priorityClassName", "preemptionPolicy",
		"schedulerName", "hostNetwork", "hostPID", "hostIPC", "serviceAccount", "serviceAccountName", "runtimeClassName", "overhead"} {
		delete(spec, k)
	}
	spec["automountServiceAccountToken"] = false
	volumes := spec["volumes"].([]any)
	spec["volumes"] = volumes[:1]
	for _, e := range spec["containers"].([]any) {
		container := e.(map[string]any)
		container["volumeMounts"] = container["volumeMounts"].([]any)[:1]
	}
}

func sliceObject(n int) map[string]any {
	endpoints := make([]any, n)
	for i := range endpoints {
		endpoints[i] = map[string]any{
			"addresses":  []any{fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)},
			"conditions": map[string]any{"ready": true, "serving": true, "terminating": false},
			"nodeName":   fmt.Sprintf("node-%d", i%10), "zone": "eu-south-1a",
			"targetRef": map[string]any{"kind": "Pod", "name": fmt.Sprintf("frontend-%d", i), "namespace": "shop"},
		}
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  map[string]any{"name": "frontend-abc", "namespace": "shop", "labels": map[string]any{"kubernetes.io/service-name": "frontend"}},
		"endpoints": endpoints, "ports": []any{map[string]any{"name": "http", "port": int64(8080), "protocol": "TCP"}},
	}
}
