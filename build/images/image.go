// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user that the processes run as; that of the chart's securityContext.
const user = "65532:65532"

// epoch dates everything: an image must not depend on when it was made.
var epoch = time.Unix(0, 0).UTC()

// build an image of a command for all platforms.
func (o *options) build(ctx context.Context, command string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, text := range o.platforms {
		platform, err := v1.ParsePlatform(text)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("--platforms: %q is not OS/ARCHITECTURE, such as linux/arm64", text)
		}
		binary, err := compile(ctx, o.source, command, platform)
		if err != nil {
			return nil, err
		}
		image, err := imageOf(command, binary, platform)
		if err != nil {
			return nil, fmt.Errorf("making the image for %s, %w", text, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

// compile a command, static and without paths of this machine.
func compile(ctx context.Context, source, command string, platform *v1.Platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "refract-images-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, command)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s", "-o", binary, "./cmd/"+command)
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture, "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building for %s, %w: %s", platform, err, out)
	}
	return os.ReadFile(binary)
}

// imageOf a command: one layer, with the command alone. The certificates of public authorities are part of the command.
func imageOf(command string, binary []byte, platform *v1.Platform) (v1.Image, error) {
	path := "usr/bin/" + command
	content, err := archive(path, binary)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), mutate.Addendum{
		Layer: layer, History: v1.History{CreatedBy: "go build ./cmd/" + command, Created: v1.Time{Time: epoch}},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant, config.Created = platform.OS, platform.Architecture, platform.Variant, v1.Time{Time: epoch}
	config.Config = v1.Config{
		User: user, Entrypoint: []string{"/" + path}, WorkingDir: "/", Env: []string{"PATH=/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title": command, "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source": "https://github.com/refract-project/refract",
		},
	}
	return mutate.ConfigFile(image, config)
}

// archive returns a tar archive of one executable, with its directories.
func archive(path string, content []byte) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	write := func(header *tar.Header, content []byte) error {
		header.ModTime, header.Format = epoch, tar.FormatUSTAR
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	for at := range strings.Count(path, "/") {
		dir := strings.Join(strings.Split(path, "/")[:at+1], "/") + "/"
		if err := write(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil); err != nil {
			return nil, err
		}
	}
	if err := write(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o755, Size: int64(len(content))}, content); err != nil {
		return nil, err
	}
	return buffer.Bytes(), w.Close()
}
