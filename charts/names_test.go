// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamesThatYAMLWouldTakeForOthers checks that names that YAML would not parse as strings result in valid objects.
func TestNamesThatYAMLWouldTakeForOthers(t *testing.T) {
	for _, odd := range []string{"2024", "1e3", "true", "null", "0x1f", "y"} {
		for _, base := range []string{"pair", "authentication", "consumer", "provider"} {
			t.Run(odd+"/"+base, func(t *testing.T) {
				vals := values(t, base)
				set := func(value any, path ...string) {
					into := vals
					for _, key := range path[:len(path)-1] {
						next, ok := into[key].(map[string]any)
						if !ok {
							next = map[string]any{}
							into[key] = next
						}
						into = next
					}
					into[path[len(path)-1]] = value
				}
				set(odd, "discovery", "config", "clusterID")
				set(odd, "offloading", "runtimeClass", "name")
				set(true, "storage", "enabled")
				set(odd, "storage", "virtualStorageClassName")
				set(odd, "storage", "realStorageClassName")
				set(true, "metrics", "enabled")
				set(odd, "virtualKubelet", "plugins", "configMapName")
				set(odd, "common", "priorityClassName")
				set(map[string]any{odd: odd}, "common", "globalAnnotations")
				set(map[string]any{odd: odd}, "common", "globalLabels")
				set(map[string]any{odd: odd}, "common", "nodeSelector")
				set([]any{map[string]any{"name": odd, "clusterID": odd + "-b", "namespace": odd, "kubeconfigSecretName": odd, "labels": map[string]any{odd: odd}}}, "virtualKubelets")
				set([]any{map[string]any{"clusterID": odd, "namespace": odd}}, "consumers")
				rendered, err := renderAs(t, vals, odd, odd)
				require.NoError(t, err)
				for _, file := range slices.Sorted(maps.Keys(rendered)) {
					if filepath.Ext(file) == ".yaml" {
						decode(t, file, rendered[file])
					}
				}
			})
		}
	}
}

// TestTheLongestClusterID checks the maximum length of a cluster ID. It is limited because names of objects consist
// of a prefix and the ID.
func TestTheLongestClusterID(t *testing.T) {
	for length, fits := range map[int]bool{51: true, 52: false} {
		id := strings.Repeat("x", length)
		for name, vals := range map[string]map[string]any{
			"own":      {"discovery": map[string]any{"config": map[string]any{"clusterID": id}}},
			"consumer": {"consumers": []any{map[string]any{"clusterID": id}}},
			"provider": {"virtualKubelets": []any{map[string]any{"name": "milan", "clusterID": id, "kubeconfigSecretName": "a"}}},
		} {
			if name != "own" {
				vals["discovery"] = map[string]any{"config": map[string]any{"clusterID": "home"}}
			}
			_, err := render(t, vals)
			require.Equal(t, fits, err == nil, "%s, %d characters: %v", name, length, err)
		}
	}
}
