// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// images runs the command and returns what it prints.
func images(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := newCommand()
	command.SetArgs(append(args, "--source=../.."))
	command.SetOut(&out)
	command.SetErr(io.Discard)
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// The image that a registry serves runs the command, as the user of the chart, and nothing else is in it. Made again, elsewhere, it is
// the same to the bit.
func TestImagesAreReproducibleAndRun(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/refract"
	dir, platform := t.TempDir(), "linux/"+runtime.GOARCH
	_, err := images(t, "--only=virtual-kubelet", "--platforms="+platform, "--push="+repository, "--plain-http", "--output="+dir)
	require.NoError(t, err)
	reference, err := name.ParseReference(repository+"/virtual-kubelet:0.1.0", name.Insecure)
	require.NoError(t, err)
	index, err := remote.Index(reference)
	require.NoError(t, err)
	first, err := index.Digest()
	require.NoError(t, err)

	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	assert.Equal(t, &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, manifest.Manifests[0].Platform)
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "65532:65532", config.Config.User)
	assert.Equal(t, []string{"/usr/bin/virtual-kubelet"}, config.Config.Entrypoint)
	assert.Equal(t, []string{"usr", "usr/bin", "usr/bin/virtual-kubelet", "tmp"}, unpack(t, image, dir))
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "virtual-kubelet"), "--version").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), runtime.Version())

	again := t.TempDir()
	_, err = images(t, "--only=virtual-kubelet", "--platforms="+platform, "--output="+again)
	require.NoError(t, err)
	archives := make([][]byte, 2)
	for i, at := range []string{dir, again} {
		archives[i], err = os.ReadFile(filepath.Join(at, "virtual-kubelet.oci.tar"))
		require.NoError(t, err)
	}
	assert.True(t, bytes.Equal(archives[0], archives[1]), "two builds give two archives")
	assert.Contains(t, string(archives[0]), first.Hex)
}

// unpack the commands of an image into dir, and list everything in it.
func unpack(t *testing.T, image v1.Image, dir string) (names []string) {
	t.Helper()
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	r := tar.NewReader(files)
	for {
		header, err := r.Next()
		if err == io.EOF {
			return names
		}
		require.NoError(t, err)
		names = append(names, header.Name)
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(header.Name)), content, header.FileInfo().Mode()))
	}
}

func TestWrongFlagsOfImages(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "set --output or --push",
		"--output=x --platforms=arm64":          `"arm64" is not OS/ARCHITECTURE`,
		"--output=" + t.TempDir() + " --only=x": "building for linux/amd64",
	} {
		_, err := images(t, strings.Fields(args)...)
		assert.ErrorContains(t, err, want, args)
	}
}
