// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

func TestOptionsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := reflection.Options{Local: &rest.Config{Host: "https://127.0.0.1:1"}, Remote: &rest.Config{Host: "https://127.0.0.1:2"}, LocalClusterID: "rome", RemoteClusterID: "milan",
		NodeName: "milan", TenantNamespace: "liqo-tenant-milan", Registry: reflectiontest.NewChains()}
	_, err := reflection.New(good)
	require.NoError(t, err)
	for want, change := range map[string]func(*reflection.Options){
		"client configuration":      func(o *reflection.Options) { o.Remote = nil },
		`cluster id "Not An ID"`:    func(o *reflection.Options) { o.RemoteClusterID = "Not An ID" },
		"both clusters have the id": func(o *reflection.Options) { o.RemoteClusterID = "rome" },
		"node name":                 func(o *reflection.Options) { o.NodeName = strings.Repeat("x", 64) },
		"tenant namespace":          func(o *reflection.Options) { o.TenantNamespace = "" },
		"plugin registry":           func(o *reflection.Options) { o.Registry = nil },
		`unknown policy "Sometimes"`: func(o *reflection.Options) {
			o.Policies = map[string]reflection.Policy{reflection.ServiceKind: "Sometimes"}
		},
		`kind "Gadget", which is not`: func(o *reflection.Options) { o.Policies = map[string]reflection.Policy{"Gadget": reflection.DenyList} },
		`API server support "legacy"`: func(o *reflection.Options) { o.APIServerSupport = "legacy" },
		"listed twice":                func(o *reflection.Options) { o.Kinds = append(reflection.DefaultKinds(), reflection.DefaultKinds()[1]) },
		"needs a name and a source":   func(o *reflection.Options) { o.Kinds = []reflection.Kind{{Policy: reflection.DenyList}} },
		"they must be the same": func(o *reflection.Options) {
			o.Kinds = []reflection.Kind{{Name: "Service.example.com", Source: servicesResource, Policy: reflection.DenyList}}
		},
		"must be written by Replace": func(o *reflection.Options) {
			o.Kinds = []reflection.Kind{{Name: "X", Source: servicesResource, Policy: reflection.DenyList, Copy: copies.Spec{Into: []string{"spec"}}}}
		},
	} {
		options := good
		change(&options)
		if _, err := reflection.New(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestMetricsAreThere(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	l := newLab(t, func(o *reflection.Options) { o.Registerer = registry }, reflectiontest.WithDefaultPlugins(t))
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Local.Create(t, l.Namespace, service("odd", "liqo.io/skip-reflection: maybe"))
	l.Local.Create(t, l.Namespace, slice("web-x", "web", "10.1.2.3"))
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.Present(l.Remote, "ShadowEndpointSlice", l.RemoteNS, "web-x")
	l.Event(l.Namespace, "Service", "odd", "InvalidObject")
	l.Settled()
	found := gathered(t, registry)
	where := " " + l.ID + " " + l.Namespace + " " + l.Node + " Service"
	for _, name := range []string{
		"liqo_virtual_kubelet_reflection_item_counter" + where, "liqo_virtual_kubelet_reflection_error_counter" + where,
		"refract_reflection_objects_total Service written", "refract_reflection_errors_total input out Service", "refract_api_writes_total remote Service patch",
		"refract_crossing_seconds out Service", "refract_plugin_duration_seconds outgoing Service service", "refract_plugin_fuel_total outgoing Service service",
		"refract_reflection_namespaces", "refract_provider_reachable",
	} {
		if found[name] < 1 {
			t.Errorf("%s is %v", name, found[name])
		}
	}
	for _, name := range []string{"refract_reflection_queue_depth Service", "refract_reflection_quarantined Service", "refract_reflection_queue_depth EndpointSlice.discovery.k8s.io",
		"refract_reflection_objects_total EndpointSlice.discovery.k8s.io written", "liqo_virtual_kubelet_reflection_item_counter" + strings.Replace(where, " Service", " EndpointSlice", 1)} {
		if _, ok := found[name]; !ok {
			t.Errorf("%s is missing in %v", name, found)
		}
	}

	// When a namespace is no longer offloaded, its series must be removed, and later changes to its pods must not
	// recreate them.
	l.MapNamespaces(nil)
	l.Eventually(func() error {
		if l.Manager.Scope(reflection.PodKind, l.Namespace) != nil {
			return errors.New("the namespace is still offloaded")
		}
		return nil
	})
	l.Pod("stray")
	l.Present(l.Local, "Pod", l.Namespace, "stray", reflectiontest.Field("status.reason", "OffloadingBackOff"))
	l.Settled()
	for name := range gathered(t, registry) {
		if strings.Contains(name, " "+l.Namespace+" ") {
			t.Errorf("there is still %s", name)
		}
	}
}

// gathered returns the value of every series of a registry. A key consists of the name and the label values,
// separated by spaces.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, family := range reflectiontest.Must(registry.Gather())(t) {
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
