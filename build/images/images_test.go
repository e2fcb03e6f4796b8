// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
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

	"github.com/refract-project/refract/charts"
	"github.com/refract-project/refract/test/support/short"
)

// images runs the program build/images and returns its output.
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

// TestImagesAreReproducibleAndRun checks the images in a registry: on each platform, they contain only the command and
// an empty /tmp, and run the command as the user that the chart expects. A second build in another directory must give
// identical images.
func TestImagesAreReproducibleAndRun(t *testing.T) {
	short.NeedTime(t, "all images to be built twice")
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/refract"
	dir := t.TempDir()
	printed, err := images(t, "--push="+repository, "--plain-http", "--output="+dir)
	require.NoError(t, err)
	again := t.TempDir()
	printedAgain, err := images(t, "--output="+again)
	require.NoError(t, err)
	assert.Equal(t, printed, printedAgain, "digests of two builds")
	for _, command := range []string{"controller-manager", "virtual-kubelet", "gateway"} {
		t.Run(command, func(t *testing.T) {
			reference, err := name.ParseReference(repository+"/"+command+":"+charts.AppVersion(), name.Insecure)
			require.NoError(t, err)
			index, err := remote.Index(reference)
			require.NoError(t, err)
			digest, err := index.Digest()
			require.NoError(t, err)
			assert.Contains(t, printed, command+"@"+digest.String()+"\n")

			manifest, err := index.IndexManifest()
			require.NoError(t, err)
			require.Len(t, manifest.Manifests, 2)
			for i, machine := range []struct {
				architecture string
				elf          elf.Machine
			}{{"amd64", elf.EM_X86_64}, {"arm64", elf.EM_AARCH64}} {
				assert.Equal(t, &v1.Platform{OS: "linux", Architecture: machine.architecture}, manifest.Manifests[i].Platform)
				image, err := index.Image(manifest.Manifests[i].Digest)
				require.NoError(t, err)
				config, err := image.ConfigFile()
				require.NoError(t, err)
				assert.Equal(t, "linux/"+machine.architecture, config.OS+"/"+config.Architecture, "the config, too: container runtimes compare it")
				assert.Equal(t, "65532:65532", config.Config.User)
				assert.Equal(t, []string{"/usr/bin/" + command}, config.Config.Entrypoint)
				unpacked := t.TempDir()
				assert.Equal(t, []string{"usr", "usr/bin", "usr/bin/" + command, "tmp"}, unpack(t, image, unpacked))
				binary, err := elf.Open(filepath.Join(unpacked, command))
				require.NoError(t, err)
				assert.Equal(t, machine.elf, binary.Machine)
				libraries, err := binary.ImportedLibraries()
				require.NoError(t, err)
				assert.Empty(t, libraries, "the image has no libraries")
				require.NoError(t, binary.Close())
				if machine.architecture == runtime.GOARCH {
					out, err := exec.CommandContext(t.Context(), filepath.Join(unpacked, command), "--version").CombinedOutput()
					require.NoError(t, err, "%s", out)
					assert.Contains(t, string(out), runtime.Version())
				}
			}
			archives := make([][]byte, 2)
			for i, at := range []string{dir, again} {
				archives[i], err = os.ReadFile(filepath.Join(at, command+".oci.tar"))
				require.NoError(t, err)
			}
			assert.True(t, bytes.Equal(archives[0], archives[1]), "two builds give two archives")
			assert.Contains(t, string(archives[0]), digest.Hex)
		})
	}
}

// unpack extracts the commands in an image to dir, and returns the names of all files in the image.
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
