// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/refract-project/refract/internal/image"
)

// user is the user ID and the group ID of the process in a container. The securityContext in the chart must have the
// same IDs.
const user = "65532:65532"

// buildImage builds the image of a command for all platforms.
func (o *options) buildImage(ctx context.Context, command string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, text := range o.platforms {
		platform, err := v1.ParsePlatform(text)
		if err != nil || platform.OS == "" || platform.Architecture == "" {
			return nil, fmt.Errorf("--platforms: %q is not OS/ARCHITECTURE, such as linux/arm64", text)
		}
		binary, err := compileCommand(ctx, o.source, command, platform)
		if err != nil {
			return nil, err
		}
		built, err := imageOf(command, binary, platform)
		if err != nil {
			return nil, fmt.Errorf("making the image for %s, %w", text, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: built, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

// compileCommand compiles a command to a static binary that contains no local paths.
func compileCommand(ctx context.Context, source, command string, platform *v1.Platform) ([]byte, error) {
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

// imageOf returns an image with a single layer, which contains only the command and an empty /tmp. Certificates of
// public authorities are compiled into the command, so the image does not need them.
func imageOf(command string, binary []byte, platform *v1.Platform) (v1.Image, error) {
	path := "usr/bin/" + command
	return image.New(image.Spec{
		Platform: *platform,
		// The command writes certificates and compiled modules to /tmp if no volume is mounted.
		Files: []image.File{{Path: path, Mode: 0o755, Content: binary}, {Path: "tmp", Mode: 0o1777, Dir: true}}, Made: "go build ./cmd/" + command,
		Config: v1.Config{
			User: user, Entrypoint: []string{"/" + path}, WorkingDir: "/", Env: []string{"PATH=/usr/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title": command, "org.opencontainers.image.licenses": "Apache-2.0",
				"org.opencontainers.image.source": "https://github.com/refract-project/refract",
			},
		},
	})
}
