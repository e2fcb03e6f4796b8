// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReference checks that the committed page matches the Go types and contains every CRD of the API.
func TestReference(t *testing.T) {
	kinds, err := readKinds("../../api")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/crds.md")
	require.NoError(t, err)
	if reference(kinds) != string(page) {
		t.Error("docs/crds.md is stale: run make generate")
	}
	crds, err := filepath.Glob("../../api/crds/*.yaml")
	require.NoError(t, err)
	network, err := filepath.Glob("../../api/crds/network/*.yaml")
	require.NoError(t, err)
	assert.Len(t, kinds, len(crds)+len(network))
	for _, want := range []string{
		"| `spec.podOffloadingStrategy` | string | PodOffloadingStrategy defines where the pods of the namespace may run. One of `Local`, `Remote`, `LocalAndRemote`. Default: `LocalAndRemote`. |\n",
		"- namespaceMappingStrategy is immutable: delete the NamespaceOffloading and create another\n",
	} {
		assert.True(t, strings.Contains(string(page), want), want)
	}
}

func TestFolderWithoutTypes(t *testing.T) {
	_, err := readKinds(t.TempDir())
	assert.ErrorContains(t, err, "no custom resource")
}
