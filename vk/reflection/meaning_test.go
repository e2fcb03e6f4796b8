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

// TestNamesOfKinds checks that every kind has one name in Refract's own interfaces, which is unique with its group, and
// that Liqo's flags and metrics have the name without the group.
func TestNamesOfKinds(t *testing.T) {
	for _, k := range reflection.DefaultKinds() {
		kind := schema.ParseGroupKind(k.Name)
		assert.Equal(t, k.Source.Group, kind.Group, k.Name)
		assert.Equal(t, kind.Kind, k.Liqo(), k.Name)
		assert.Equal(t, strings.ToLower(kind.Kind), k.Flag(), k.Name)
	}
}
