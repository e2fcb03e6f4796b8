// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package registrytest

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
)

// PushSigned stores images as plugins/<title>:1, with their signatures. The folder contains the layout that hack/cosign
// has written. Cosign 2 stores a signature as a tag, and cosign 3 as a referrer of the image.
func (r *Registry) PushSigned(t *testing.T, folder string) {
	t.Helper()
	path, err := layout.FromPath(folder)
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
		repository, err := name.NewRepository(r.Host() + "/plugins/" + title)
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
		require.NoError(t, remote.Write(reference, image, trusting()))
	}
}
