// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/refract-project/refract/internal/image"
)

// links are the names under which kubectl finds refractctl as a plugin.
var links = []string{"kubectl-refract", "kubectl_complete-refract"}

// member is a file or a symbolic link in an archive.
type member struct {
	name, link string
	content    []byte
	mode       int64
}

// packBinaries writes an archive with refractctl for each platform.
func (r *release) packBinaries(ctx context.Context) error {
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	for _, platform := range r.platforms {
		system, architecture, found := strings.Cut(platform, "/")
		if !found {
			return fmt.Errorf("--platforms: %q is not OS/ARCHITECTURE, such as linux/arm64", platform)
		}
		binary, err := r.compileCommand(ctx, "refractctl", system, architecture)
		if err != nil {
			return err
		}
		name := "refractctl"
		if system == "windows" {
			name += ".exe"
		}
		members := []member{{name: "LICENSE", content: license, mode: 0o644}, {name: name, content: binary, mode: 0o755}}
		if system != "windows" {
			for _, link := range links {
				members = append(members, member{name: link, link: name})
			}
		}
		if err := writeTar(r.filePath(fmt.Sprintf("refractctl-%s-%s-%s.tar.gz", r.version, system, architecture)), members); err != nil {
			return err
		}
	}
	return nil
}

// compileCommand returns the binary of a command, without debug information.
func (r *release) compileCommand(ctx context.Context, command, system, architecture string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "refract-release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, command)
	env := []string{"CGO_ENABLED=0", "GOFLAGS=", "GOOS=" + system, "GOARCH=" + architecture}
	if _, err := commandOutput(ctx, r.source, env, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/"+command); err != nil {
		return nil, err
	}
	return os.ReadFile(binary)
}

// packPlugins writes an archive with the modules of the default plugins.
func (r *release) packPlugins(context.Context) error {
	paths, err := filepath.Glob(filepath.Join(r.source, "plugins", "*", "*.wasm"))
	if err != nil {
		return err
	}
	var members []member
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		members = append(members, member{name: filepath.Base(path), content: content, mode: 0o644})
	}
	if len(members) == 0 {
		return errNoPlugins
	}
	return writeTar(r.filePath("plugins-"+r.version+".tar.gz"), members)
}

// writeTar writes a compressed archive. The same members give the same archive, byte for byte.
func writeTar(path string, members []member) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	compressed := gzip.NewWriter(file)
	archive := tar.NewWriter(compressed)
	for _, m := range members {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: m.mode, Size: int64(len(m.content)), ModTime: image.Epoch, Format: tar.FormatUSTAR}
		if m.link != "" {
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, m.link, 0o777
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(m.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

// writeChecksums writes the checksums of all files to SHA256SUMS, in the format that sha256sum --check reads.
func (r *release) writeChecksums(context.Context) error {
	entries, err := os.ReadDir(r.output)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries {
		content, err := os.ReadFile(r.filePath(entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return os.WriteFile(r.filePath("SHA256SUMS"), []byte(sums.String()), 0o644)
}
