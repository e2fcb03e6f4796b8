// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/vk/reflection"
)

const root = "../.."

func TestPlacesAreUpToDate(t *testing.T) {
	for _, p := range places {
		content, err := os.ReadFile(filepath.Join(root, p.path))
		require.NoError(t, err)
		updated, err := p.update(string(content), reflection.DefaultKinds())
		require.NoError(t, err, p.path)
		assert.True(t, updated == string(content), "%s is stale: run make generate", p.path)
	}
}

// TestANewKindIsAddedEverywhere checks that a new kind is added to every file that lists the kinds, and that updating
// the files a second time changes nothing.
func TestANewKindIsAddedEverywhere(t *testing.T) {
	lamp := reflection.Kind{Name: "Lamp.home.example.com", LiqoName: "Lamp", Policy: reflection.AllowList, Workers: 4,
		Source: schema.GroupVersionResource{Group: "home.example.com", Version: "v1", Resource: "lamps"}}
	kinds := append(reflection.DefaultKinds(), lamp)
	for path, want := range map[string]string{
		"controllers/virtualnode/forge.go":            `{"lamp", true},`,
		"api/plugins/v1alpha1/reflectedresource.go":   "!(self.group == 'home.example.com' && self.resource in ['lamps'])",
		"api/offloading/v1beta1/vkoptionstemplate.go": "lamp.",
		"charts/refract/values.schema.json":           `|lamp)$": { "$ref": "#/definitions/reflection" }`,
		"charts/refract/values.yaml":                  "    lamp:\n      workers: 4\n      type: AllowList\n",
	} {
		for _, p := range places {
			if p.path != path {
				continue
			}
			content, err := os.ReadFile(filepath.Join(root, path))
			require.NoError(t, err)
			once, err := p.update(string(content), kinds)
			require.NoError(t, err, path)
			assert.Contains(t, once, want, path)
			twice, err := p.update(once, kinds)
			require.NoError(t, err, path)
			assert.True(t, once == twice, "the second run changes %s", path)
		}
	}
}

// TestRulesNameServiceAccounts checks that the rules contain ServiceAccounts, because their tokens are reflected for
// pods.
func TestRulesNameServiceAccounts(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "api/plugins/v1alpha1/reflectedresource.go"))
	require.NoError(t, err)
	updated, err := updateRules(string(content), reflection.DefaultKinds())
	require.NoError(t, err)
	assert.Contains(t, updated, "'serviceaccounts'")
}

func TestAPlaceOfAnotherFormIsAnError(t *testing.T) {
	for _, p := range places {
		_, err := p.update("something else\n", reflection.DefaultKinds())
		assert.ErrorContains(t, err, "adapt hack/kinds", p.path)
	}
}
