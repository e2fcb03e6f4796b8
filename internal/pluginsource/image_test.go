// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An image has one spelling, or is refused: servers and resolvers treat the others as the same image, a policy does not.
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
