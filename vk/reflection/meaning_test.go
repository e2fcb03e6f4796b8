// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"strings"
	"testing"

	"github.com/refract-project/refract/vk/reflection"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What the provider names in its Events is known by the kind that it has there.
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
		"/Pod": "Pod", "offloading.liqo.io/ShadowPod": "Pod", "/Service": "Service", "networking.k8s.io/Ingress": "Ingress", "/ConfigMap": "ConfigMap", "/Secret": "Secret", "/PersistentVolumeClaim": "PersistentVolumeClaim", "/ServiceAccount": "",
		"discovery.k8s.io/EndpointSlice": "EndpointSlice", "offloading.liqo.io/ShadowEndpointSlice": "EndpointSlice",
		"/Event": "", "/Node": "", "apps/Deployment": "", "apps/Service": "", "/": "",
	} {
		group, name, _ := strings.Cut(kind, "/")
		if got := strings.Join(means(group, name), " "); got != want {
			t.Errorf("%s is reflected as %q, want %q", kind, got, want)
		}
	}
	custom := reflection.Kind{Name: "Gizmo.example.com", Source: schema.GroupVersionResource{Group: "example.com"}, TargetKind: schema.GroupVersionKind{Group: "there.com", Kind: "Gadget"}}
	if custom.Means(schema.GroupKind{Group: "example.com", Kind: "Gizmo"}) || !custom.Means(schema.GroupKind{Group: "there.com", Kind: "Gadget"}) {
		t.Error("a kind that is written as another means that one alone")
	}
}
