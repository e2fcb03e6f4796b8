// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVanished(t *testing.T) {
	sent := map[string]any{
		"hostNetwork": false, "hostUsers": false, "priority": int64(1), "hostnameOverride": "web", "tolerations": []any{}, "schedulerName": "a",
		"resources":      map[string]any{"limits": map[string]any{"cpu": "1"}},
		"initContainers": []any{map[string]any{"name": "proxy", "restartPolicy": "Always", "image": "a"}},
		"containers":     []any{map[string]any{"name": "main", "env": []any{map[string]any{"name": "A", "value": ""}}}, map[string]any{"name": "gone"}},
		"hostAliases":    []any{map[string]any{"ip": "10.0.0.1"}},
		"volumes": []any{map[string]any{"name": "model", "image": map[string]any{"reference": "a"}},
			map[string]any{"name": "data", "emptyDir": map[string]any{}}},
	}
	stored := map[string]any{
		"schedulerName": "b", "initContainers": []any{map[string]any{"name": "proxy", "image": "mirror/a"}},
		"containers": []any{map[string]any{"name": "sidecar"}, map[string]any{"name": "main", "env": []any{map[string]any{"name": "A"}}}},
		"volumes":    []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}},
	}
	got := vanished(sent, stored)
	want := []string{"containers/gone", "hostAliases", "hostUsers", "hostnameOverride", "initContainers/proxy/restartPolicy", "priority",
		"resources/limits/cpu", "volumes/model"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = []string{"hostUsers", "hostnameOverride", "initContainers/proxy/restartPolicy", "resources/limits/cpu",
		"volumes/model/image/reference"}
	if diff := cmp.Diff(want, droppedEssentials(sent, stored)); diff != "" {
		t.Errorf("essential ones (-want +got):\n%s", diff)
	}
	delete(stored, "volumes")
	if diff := cmp.Diff(want, droppedEssentials(sent, stored)); diff != "" {
		t.Errorf("essential ones without any volumes (-want +got):\n%s", diff)
	}
	if fields := vanished(sent, sent); len(fields) > 0 {
		t.Errorf("of itself %q", fields)
	}
}
