// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"strings"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/copies"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestMeaningOfKinds checks that the object to which a provider's Event refers is found by its kind on the provider.
func TestMeaningOfKinds(t *testing.T) {
	means := func(group, kind string) (names []string) {
		for _, k := range reflection.DefaultKinds() {
			if k.Means(schema.GroupKind{Group: group, Kind: kind}) {
				names = append(names, k.Name)
			}
		}
		return names
	}
	for kind, want := range map[string]string{
		"/Pod": "Pod", "offloading.liqo.io/ShadowPod": "Pod", "/Service": "Service", "networking.k8s.io/Ingress": "Ingress.networking.k8s.io", "networking.k8s.io/NetworkPolicy": "NetworkPolicy.networking.k8s.io", "policy/PodDisruptionBudget": "PodDisruptionBudget.policy", "/ConfigMap": "ConfigMap", "/Secret": "Secret", "/PersistentVolumeClaim": "PersistentVolumeClaim", "/ServiceAccount": "",
		"discovery.k8s.io/EndpointSlice": "EndpointSlice.discovery.k8s.io", "offloading.liqo.io/ShadowEndpointSlice": "EndpointSlice.discovery.k8s.io",
		"/Event": "", "/Node": "", "apps/Deployment": "", "apps/Service": "", "/": "",
	} {
		group, name, _ := strings.Cut(kind, "/")
		if got := strings.Join(means(group, name), " "); got != want {
			t.Errorf("%s is reflected as %q, want %q", kind, got, want)
		}
	}
	custom := reflection.Kind{Name: "Gizmo.example.com", Source: schema.GroupVersionResource{Group: "example.com"}, Copy: copies.Spec{GVK: schema.GroupVersionKind{Group: "there.com", Kind: "Gadget"}}}
	if custom.Means(schema.GroupKind{Group: "example.com", Kind: "Gizmo"}) || !custom.Means(schema.GroupKind{Group: "there.com", Kind: "Gadget"}) {
		t.Error("a kind that is written as another means that one alone")
	}
}

// TestNamesOfKinds checks that every kind has one name, both internally and in Refract's own interfaces, and that
// Liqo's names are used in Liqo's flags and metrics.
func TestNamesOfKinds(t *testing.T) {
	var names, liqo, flags []string
	for _, k := range reflection.DefaultKinds() {
		names, liqo, flags = append(names, k.Name), append(liqo, k.Liqo()), append(flags, k.Flag())
	}
	assert.Equal(t, []string{"Pod", "Service", "Ingress.networking.k8s.io", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim", "EndpointSlice.discovery.k8s.io", "Event", "NetworkPolicy.networking.k8s.io", "PodDisruptionBudget.policy"}, names)
	assert.Equal(t, []string{"Pod", "Service", "Ingress", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim", "EndpointSlice", "Event", "NetworkPolicy", "PodDisruptionBudget"}, liqo)
	assert.Equal(t, []string{"pod", "service", "ingress", "configmap", "secret", "serviceaccount", "persistentvolumeclaim", "endpointslice", "event", "networkpolicy", "poddisruptionbudget"}, flags)
}
