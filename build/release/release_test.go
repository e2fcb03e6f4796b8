// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
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
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/charts"
	"github.com/refract-project/refract/test/support/short"
)

// mostBytes is the maximum size of the refractctl binary in bytes. It is limited because users download the binary.
const mostBytes = 75_000_000

// makeRelease runs the program build/release in the checkout.
func makeRelease(t *testing.T, args ...string) error {
	t.Helper()
	command := newCommand()
	command.SetArgs(append(args, "--source=../.."))
	command.SetOut(io.Discard)
	command.SetErr(io.Discard)
	return command.ExecuteContext(t.Context())
}

// TestRelease checks that a release has all of its files, with valid checksums, and that the images and the chart can
// be pulled from the registry.
func TestRelease(t *testing.T) {
	short.NeedTime(t, "a release to be built")
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/refract"
	dir := filepath.Join(t.TempDir(), "dist")
	platform := "linux/" + runtime.GOARCH
	require.NoError(t, makeRelease(t, "--snapshot", "--output="+dir, "--push="+repository, "--plain-http", "--platforms="+platform, "--image-platforms="+platform))

	version := charts.AppVersion()
	refractctl := "refractctl-" + version + "-linux-" + runtime.GOARCH + ".tar.gz"
	wanted := []string{refractctl, "plugins-" + version + ".tar.gz", "refract-" + version + ".tgz", "images.txt", "controller-manager.oci.tar", "virtual-kubelet.oci.tar", "gateway.oci.tar",
		"refractctl-" + version + ".cdx.json", "controller-manager-" + version + ".cdx.json", "virtual-kubelet-" + version + ".cdx.json", "gateway-" + version + ".cdx.json"}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	require.NoError(t, err)
	assert.Equal(t, len(wanted), strings.Count(string(sums), "\n"))
	for _, file := range wanted {
		content, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		assert.Contains(t, string(sums), fmt.Sprintf("%x  %s\n", sha256.Sum256(content), file))
	}

	members := unpack(t, filepath.Join(dir, refractctl))
	assert.Less(t, len(members["refractctl"].content), mostBytes)
	assert.Equal(t, "refractctl", members["kubectl-refract"].link)
	assert.Equal(t, "refractctl", members["kubectl_complete-refract"].link)
	program := filepath.Join(t.TempDir(), "kubectl-refract")
	require.NoError(t, os.WriteFile(program, members["refractctl"].content, 0o755))
	out, err := exec.CommandContext(t.Context(), program, "version", "-o", "json").Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), version)
	assert.NotEmpty(t, unpack(t, filepath.Join(dir, "plugins-"+version+".tar.gz"))["pod.wasm"].content)

	for _, repository := range []string{repository + "/controller-manager", repository + "/virtual-kubelet", repository + "/gateway", repository + "/charts/refract"} {
		reference, err := name.ParseReference(repository+":"+version, name.Insecure)
		require.NoError(t, err)
		_, err = remote.Head(reference)
		assert.NoError(t, err, "%s", reference)
	}

	for _, command := range []string{"refractctl", "controller-manager", "virtual-kubelet", "gateway"} {
		var sbom struct {
			Components []struct{ Name, Version string }
		}
		content, err := os.ReadFile(filepath.Join(dir, command+"-"+version+".cdx.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, &sbom))
		names := map[string]string{}
		for _, component := range sbom.Components {
			names[component.Name] = component.Version
		}
		assert.NotEmpty(t, names["k8s.io/client-go"], command)
	}
	assert.ErrorContains(t, makeRelease(t, "--snapshot", "--output="+dir), "is not empty")
}

// unpack returns the members of an archive by their names.
func unpack(t *testing.T, path string) map[string]member {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	require.NoError(t, err)
	members := map[string]member{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return members
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		members[header.Name] = member{name: header.Name, link: header.Linkname, content: content}
	}
}

// TestCheckVersion checks that a version can be released only from the commit with its tag, and only if the changelog
// has a section for it.
func TestCheckVersion(t *testing.T) {
	r := &release{source: t.TempDir(), version: "1.2.3"}
	git := func(args ...string) {
		t.Helper()
		_, err := r.runGit(t.Context(), append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		require.NoError(t, err)
	}
	changelog := filepath.Join(r.source, "CHANGELOG.md")
	git("init", "--quiet")
	require.NoError(t, os.WriteFile(changelog, []byte("# Changelog\n\n## Unreleased\n"), 0o644))
	assert.ErrorContains(t, r.checkVersion(t.Context()), `no section "## 1.2.3 (YYYY-MM-DD)"`)
	require.NoError(t, os.WriteFile(changelog, []byte("# Changelog\n\n## 1.2.3 (2026-01-02)\n"), 0o644))
	assert.ErrorContains(t, r.checkVersion(t.Context()), "the checkout has changes")
	git("add", ".")
	git("commit", "--quiet", "--message=a")
	assert.ErrorContains(t, r.checkVersion(t.Context()), "does not have the tag v1.2.3")
	git("tag", "v1.2.3")
	assert.NoError(t, r.checkVersion(t.Context()))
}
