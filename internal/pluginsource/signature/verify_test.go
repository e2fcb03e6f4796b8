// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/internal/pluginsource"
)

// signedRegistry has the images of testdata, which cosign has signed (see hack/cosign), and returns its host.
func signedRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	path, err := layout.FromPath("testdata")
	require.NoError(t, err)
	index, err := path.ImageIndex()
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	digests := map[string]string{}
	for _, m := range manifest.Manifests {
		image, err := path.Image(m.Digest)
		require.NoError(t, err)
		title, attached, _ := strings.Cut(m.Annotations["org.opencontainers.image.ref.name"], ".")
		repository, err := name.NewRepository(host + "/plugins/" + title)
		require.NoError(t, err)
		var reference name.Reference
		switch attached {
		case "":
			digests[title] = m.Digest.String()
			reference = repository.Tag("1")
		case "signature":
			reference = repository.Tag(strings.Replace(digests[title], ":", "-", 1) + ".sig")
		default:
			reference = repository.Digest(m.Digest.String())
		}
		require.NoError(t, remote.Write(reference, image))
	}
	return host
}

func keyOf(t *testing.T, title string) Key {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", title+".pub"))
	require.NoError(t, err)
	key, err := ParseKey(string(text))
	require.NoError(t, err)
	return key
}

// The signatures of a real cosign, in both of its layouts, count for the image and the key that they are of, and for no others.
func TestSignaturesOfCosign(t *testing.T) {
	host := signedRegistry(t)
	trusted, other := keyOf(t, "trusted"), keyOf(t, "other")
	for _, c := range []struct {
		image  string
		keys   []Key
		signer string
		found  int
	}{
		{image: "unsigned", keys: []Key{trusted}},
		{image: "v2", keys: []Key{other, trusted}, signer: trusted.Fingerprint(), found: 1},
		{image: "v3", keys: []Key{other, trusted}, signer: trusted.Fingerprint(), found: 1},
		{image: "v2", keys: []Key{other}, found: 1},
		{image: "v3", keys: []Key{other}, found: 1},
		{image: "other-v2", keys: []Key{trusted}, found: 1},
		{image: "other-v3", keys: []Key{trusted}, found: 1},
		{image: "attested", keys: []Key{trusted}, found: 1}, // an attestation is no signature, although it is signed
	} {
		t.Run(c.image, func(t *testing.T) {
			access, err := pluginsource.OCI{Image: host + "/plugins/" + c.image + ":1"}.Open(pluginsource.Options{InsecureRegistries: []string{host}})
			require.NoError(t, err)
			image, err := access.Resolve(t.Context())
			require.NoError(t, err)
			attachments := image.Attachments(t.Context())
			result, err := Verify(t.Context(), image.Digest.DigestStr(), attachments, c.keys)
			require.NoError(t, err)
			assert.Equal(t, c.signer, result.Signer)
			assert.Equal(t, c.found, result.Signatures)
			// The same signatures for another image.
			result, err = Verify(t.Context(), "sha256:"+strings.Repeat("0", 64), attachments, c.keys)
			require.NoError(t, err)
			assert.Empty(t, result.Signer)
		})
	}
}

func TestPolicy(t *testing.T) {
	key, err := os.ReadFile("testdata/trusted.pub")
	require.NoError(t, err)
	indented := strings.ReplaceAll(string(key), "\n", "\n      ")
	policy, err := ParsePolicy([]byte(`default: Off
prefixes:
- prefix: registry.example.com
  mode: Warn
- prefix: Registry.Example.com:443/plugins/
  mode: Require
  keys:
  - |
      ` + indented + `
- prefix: https://plugins.example.com/trusted
  mode: Warn
- prefix: docker.io/library
  mode: Warn
`))
	require.NoError(t, err)
	for source, want := range map[string]Mode{
		"registry.example.com/plugins/strip":         Require,
		"registry.example.com/plugins":               Require,
		"registry.example.com:443/plugins/strip":     Require,
		"REGISTRY.example.com/plugins/strip":         Require,
		"registry.example.com./plugins/strip":        Require,
		"registry.example.com/plugins-of-others/a":   Warn,
		"registry.example.com/other":                 Warn,
		"registry.example.com.evil.org/plugins/a":    Off,
		"registry.example.com:5000/plugins/a":        Off,
		"https://plugins.example.com/trusted/a.wasm": Warn,
		"https://plugins.example.com/other/a.wasm":   Off,
		"index.docker.io/library/a":                  Warn,
		"registry-1.docker.io/library/a":             Warn,
		"configMap/a":                                Off,
	} {
		assert.Equal(t, want, policy.For(source).Mode, source)
	}
	// Other spellings of a repository that requires signatures are refused.
	for _, image := range []string{
		"registry.example.com/other/../plugins/strip", "registry.example.com/./plugins/strip", "registry.example.com//plugins/strip", "registry.example.com/plugins/./strip",
		"registry.example.com:/plugins/strip", "registry.example.com:0443/plugins/strip", "registry.example.com../plugins/strip", "ｒegistry.example.com/plugins/strip",
	} {
		_, err := pluginsource.ParseImage(image)
		assert.ErrorContains(t, err, "spec.source.oci.image", image)
	}
	assert.Len(t, policy.For("registry.example.com/plugins/strip").Keys, 1)
	assert.NotEqual(t, policy.For("registry.example.com/plugins/a").Fingerprint(), policy.For("registry.example.com/a").Fingerprint())
	for text, says := range map[string]string{
		"default: Always":                                     "default",
		"prefixes: [{prefix: a, mode: Maybe}]":                "prefixes[0].mode",
		"prefixes: [{prefix: a, mode: Require}]":              "no keys",
		"prefixes: [{prefix: '', mode: Off}]":                 "prefixes[0].prefix",
		"prefixes: [{prefix: a, mode: Warn, keys: [text]}]":   "prefixes[0].keys[0]",
		"prefixes: [{prefix: a, mode: Warn, publicKeys: []}]": "publicKeys",
	} {
		_, err := ParsePolicy([]byte(text))
		assert.ErrorContains(t, err, says, text)
	}
}
