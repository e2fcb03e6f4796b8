// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

func TestOptionsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := Options{Local: &rest.Config{Host: "https://127.0.0.1:1"}, Remote: &rest.Config{Host: "https://127.0.0.1:2"}, LocalClusterID: "rome", RemoteClusterID: "milan",
		NodeName: "milan", TenantNamespace: "liqo-tenant-milan", Registry: newTestChains()}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"client configuration":        func(o *Options) { o.Remote = nil },
		`cluster id "Not An ID"`:      func(o *Options) { o.RemoteClusterID = "Not An ID" },
		"both clusters have the id":   func(o *Options) { o.RemoteClusterID = "rome" },
		"node name":                   func(o *Options) { o.NodeName = strings.Repeat("x", 64) },
		"tenant namespace":            func(o *Options) { o.TenantNamespace = "" },
		"plugin registry":             func(o *Options) { o.Registry = nil },
		`unknown policy "Sometimes"`:  func(o *Options) { o.Policies = map[string]Policy{ServiceKind: "Sometimes"} },
		`kind "Gadget", which is not`: func(o *Options) { o.Policies = map[string]Policy{"Gadget": DenyList} },
		`API server support "legacy"`: func(o *Options) { o.APIServerSupport = "legacy" },
		"listed twice":                func(o *Options) { o.Kinds = append(DefaultKinds(), DefaultKinds()[1]) },
		"needs a name and a source":   func(o *Options) { o.Kinds = []Kind{{Policy: DenyList}} },
		"must be written by Replace": func(o *Options) {
			o.Kinds = []Kind{{Name: "X", Source: servicesResource, Policy: DenyList, Into: []string{"spec"}}}
		},
	} {
		options := good
		change(&options)
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestMetricsAreThere(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	l := newLab(t, func(o *Options) { o.Registerer = registry }, withDefaultPlugins(t))
	l.local.create(t, l.namespace, service("web", ""))
	l.local.create(t, l.namespace, service("odd", "liqo.io/skip-reflection: maybe"))
	l.local.create(t, l.namespace, slice("web-x", "web", "10.1.2.3"))
	l.start()
	l.present(l.remote, "Service", l.remoteNS, "web")
	l.event(l.namespace, "Service", "odd", "InvalidObject")
	l.settled()
	found := gathered(t, registry)
	where := " " + l.id + " " + l.namespace + " " + l.node + " Service"
	for _, name := range []string{
		"liqo_virtual_kubelet_reflection_item_counter" + where, "liqo_virtual_kubelet_reflection_error_counter" + where,
		"refract_reflection_objects_total Service written", "refract_reflection_errors_total input Service", "refract_api_writes_total remote Service patch",
		"refract_plugin_duration_seconds outgoing Service service", "refract_plugin_fuel_total outgoing Service service",
		"refract_reflection_namespaces", "refract_provider_reachable",
	} {
		if found[name] < 1 {
			t.Errorf("%s is %v", name, found[name])
		}
	}
	for _, name := range []string{"refract_reflection_queue_depth Service", "refract_reflection_queue_depth EndpointSlice.discovery.k8s.io",
		"refract_reflection_objects_total EndpointSlice.discovery.k8s.io written", "liqo_virtual_kubelet_reflection_item_counter" + strings.Replace(where, " Service", " EndpointSlice", 1)} {
		if _, ok := found[name]; !ok {
			t.Errorf("%s is missing in %v", name, found)
		}
	}

	// A namespace that is not extended any more leaves no series behind, whatever comes of its pods.
	l.mapNamespaces(nil)
	l.eventually(func() error {
		if l.manager.Scope(PodKind, l.namespace) != nil {
			return errors.New("the namespace is still extended")
		}
		return nil
	})
	l.pod("stray")
	l.present(l.local, "Pod", l.namespace, "stray", field("status.reason", "OffloadingBackOff"))
	l.settled()
	for name := range gathered(t, registry) {
		if strings.Contains(name, " "+l.namespace+" ") {
			t.Errorf("there is still %s", name)
		}
	}
}

// gathered returns every series of a registry: its name and the values of its labels, separated by spaces, and what it counts.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, family := range must(registry.Gather())(t) {
		for _, metric := range family.GetMetric() {
			labels := ""
			for _, pair := range metric.GetLabel() {
				labels += " " + pair.GetValue()
			}
			found[family.GetName()+labels] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return found
}
