// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestParseImage checks that each image has only one accepted spelling. Other spellings are rejected, because servers
// and resolvers treat them as the same image, but a policy would not.
func TestParseImage(t *testing.T) {
	sum := "sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]string{
		"Registry.Example.com:443/plugins/a:1":   "registry.example.com/plugins/a:1",
		"registry.example.com./plugins/a":        "registry.example.com/plugins/a:latest",
		"registry.example.com:5000/a.b_c__d--e":  "registry.example.com:5000/a.b_c__d--e:latest",
		"docker.io/a":                            "index.docker.io/library/a:latest",
		"registry-1.docker.io/plugins/a":         "index.docker.io/plugins/a:latest",
		"[::1]:5000/a@" + sum:                    "[::1]:5000/a@" + sum,
		"10.0.0.1:5000/a:1@" + sum:               "10.0.0.1:5000/a@" + sum,
		"registry.example.com:4430/plugins/a:v1": "registry.example.com:4430/plugins/a:v1",
	} {
		reference, err := ParseImage(image)
		require.NoError(t, err, image)
		assert.Equal(t, want, reference.Name())
	}
	for _, image := range []string{
		"registry.example.com/plugins/../a", "registry.example.com/..", "registry.example.com/plugins/./a", "registry.example.com//a", "registry.example.com/a/",
		"registry.example.com/.a", "registry.example.com/a.", "registry.example.com/a..b", "registry.example.com/a___b", "registry.example.com/a-/b", "plugins/../a",
		"registry.example.com/a:..", "registry.example.com/a:-1", "registry.example.com/plugins%2fa", "registry.example.com/a?b", "registry.example.com/../a@" + sum,
		"registry.example.com:/a", "registry.example.com:0443/a", "registry.example.com:00443/a", "registry.example.com../a", ".registry.example.com/a", "-.example.com/a",
		"user@registry.example.com/a", "ｒegistry.example.com/a", "[::ffff:10.0.0.1]:5000/a", "[0:0::1]:5000/a", "[fe80::1%25eth0]/a",
	} {
		_, err := ParseImage(image)
		assert.Equal(t, InvalidSource, reasonOfError(err), image)
		assert.ErrorContains(t, err, "spec.source.oci.image", image)
	}
}

// TestParseURL checks that each URL has only one accepted spelling of its host and path.
func TestParseURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://Files.Example.com:443/plugins/a.wasm": "https://files.example.com/plugins/a.wasm",
		"https://files.example.com./a.wasm?token=1":    "https://files.example.com/a.wasm?token=1",
		"https://[::1]:8443/a/":                        "https://[::1]:8443/a/",
	} {
		u, err := ParseURL(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, u.String())
	}
	for _, text := range []string{
		"http://files.example.com/a", "https://user@files.example.com/a", "https:///a", "https://files.example.com:/a",
		"https://files.example.com:08443/a", "https://[::ffff:10.0.0.1]/a", "https://[0:0::1]/a", "https://ｆiles.example.com/a",
		"https://files.example.com/../a", "https://files.example.com/plugins/./a", "https://files.example.com/plugins//a",
		"https://files.example.com/plugins/..;v=1/a", "https://files.example.com/plugins%2Fa", "https://files.example.com/plugins%5Ca",
		"https://files.example.com/%252e%252e/a",
	} {
		_, err := ParseURL(text)
		assert.Equal(t, InvalidSource, reasonOfError(err), text)
		assert.ErrorContains(t, err, "spec.source.http.url", text)
	}
}
