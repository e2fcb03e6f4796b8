// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package folderplugins

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The result of Encode can be decoded again. The annotation has a maximum size, and contains the number of plugins that
// do not fit.
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
