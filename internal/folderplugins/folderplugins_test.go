// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package folderplugins

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestAnnotation checks that Decode reverses Encode. A list of plugins that exceeds the maximum size must be shortened,
// with the number of omitted plugins.
func TestAnnotation(t *testing.T) {
	few := []Plugin{{Name: "strip", State: "Loaded", IsRunning: true, Version: "1.0", Kinds: []string{"Service"},
		Hooks: []string{"outgoing"}, Priority: -1, Replaces: "service"},
		{Name: "broken", State: "Failed", Held: []string{"Pod"}}}
	text, err := Encode(few)
	require.NoError(t, err)
	got, err := Decode(map[string]string{Annotation: text})
	require.NoError(t, err)
	assert.Equal(t, List{Plugins: few}, got)

	var many []Plugin
	for n := range 500 {
		many = append(many, Plugin{Name: fmt.Sprintf("%d-%s", n, strings.Repeat("n", 200)), State: "Loaded"})
	}
	text, err = Encode(many)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(text), maxBytes)
	got, err = Decode(map[string]string{Annotation: text})
	require.NoError(t, err)
	assert.Greater(t, len(got.Plugins), 100)
	assert.Equal(t, len(many), len(got.Plugins)+got.Omitted)
	assert.Equal(t, many[:len(got.Plugins)], got.Plugins)

	text, err = Encode(nil)
	require.NoError(t, err)
	assert.Empty(t, text)
	got, err = Decode(nil)
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = Decode(map[string]string{Annotation: "nonsense"})
	require.ErrorContains(t, err, Annotation)
}

// TestCondition checks the condition for each state of the folder. Held objects must take precedence over plugins that
// fail while an earlier version runs. The number of names must be limited.
func TestCondition(t *testing.T) {
	assert.Nil(t, NewCondition(nil))
	good := Plugin{Name: "good", State: LoadedState, IsRunning: true}
	earlier := Plugin{Name: "earlier", State: FailedState, IsRunning: true}
	holding := Plugin{Name: "holding", State: FailedState, Held: []string{"Service", "Pod"}}
	also := Plugin{Name: "also", State: FailedState, Held: []string{"Pod"}}
	var many []Plugin
	for n := range 7 {
		many = append(many, Plugin{Name: fmt.Sprint("p", n), State: FailedState})
	}
	for name, test := range map[string]struct {
		plugins      []Plugin
		status       corev1.ConditionStatus
		reason, text string
	}{
		"loaded":             {[]Plugin{good}, corev1.ConditionTrue, LoadedReason, "(1) are loaded"},
		"an earlier version": {[]Plugin{good, earlier}, corev1.ConditionFalse, FailedReason, "Plugins that do not load, of which an earlier version runs: earlier. See "},
		"held":               {[]Plugin{good, earlier, holding, also}, corev1.ConditionFalse, HeldReason, "Plugins that cannot run: holding, also. Objects of these kinds are neither written nor deleted until they can: Pod, Service. Plugins that do not load, of which an earlier version runs: earlier. See "},
		"many":               {many, corev1.ConditionFalse, FailedReason, "Plugins that do not load, without which objects are reflected: p0, p1, p2, p3, p4 and 2 more. See "},
	} {
		t.Run(name, func(t *testing.T) {
			got := NewCondition(test.plugins)
			assert.Equal(t, []any{ConditionType, test.status, test.reason}, []any{got.Type, got.Status, got.Reason})
			assert.Contains(t, got.Message, test.text)
		})
	}
}
