// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestPhaseOfAShadowPodIsNoNews checks that a ShadowPod is not reconciled if only its phase or its finalizers change,
// because its pod also reports the phase. A final phase and all other changes must be reconciled.
func TestPhaseOfAShadowPodIsNoNews(t *testing.T) {
	shadow := func(version string, path ...string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		text := `{metadata: {uid: u, resourceVersion: "` + version + `", generation: 1, labels: {app: web}, annotations: {note: hello}}, status: {phase: Pending}}`
		require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
		if n := len(path); n > 0 {
			require.NoError(t, unstructured.SetNestedField(o.Object, path[n-1], path[:n-1]...))
		}
		return o
	}
	respecified := shadow("2")
	respecified.SetGeneration(2)
	h, before := &Handler{}, shadow("1")
	for name, tc := range map[string]struct {
		after  *unstructured.Unstructured
		noNews bool
	}{
		"the phase":      {shadow("2", "status", "phase", "Running"), true},
		"a finalizer":    {shadow("2"), true},
		"a resync":       {shadow("1"), false},
		"the end":        {shadow("2", "status", "phase", "Failed"), false},
		"its spec":       {respecified, false},
		"a label":        {shadow("2", "metadata", "labels", "app", "hacked"), false},
		"an annotation":  {shadow("2", "metadata", "annotations", "note", "hacked"), false},
		"its deletion":   {shadow("2", "metadata", "deletionTimestamp", "2026-01-01T00:00:00Z"), false},
		"another object": {shadow("2", "metadata", "uid", "v"), false},
	} {
		if got := !h.CopyMatters(before, tc.after); got != tc.noNews {
			t.Errorf("%s is no news: %t, want %t", name, got, tc.noNews)
		}
	}
	if !h.CopyMatters(nil, before) {
		t.Error("what is new is taken for a phase")
	}
}
