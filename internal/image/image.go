// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package image builds container images from files, without a container runtime. Builds are reproducible byte for byte.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Epoch is the timestamp of all files in an image. It is constant, because the image must not depend on the time of the
// build.
var Epoch = time.Unix(0, 0).UTC()

// File is a file of an image, owned by root.
type File struct {
	// Path is the path in the image, without a leading slash. Parent directories are created.
	Path string
	// Mode contains the permission bits.
	Mode int64
	// Content is the content of the file. If Link is set, the file is a symbolic link to Link. If Dir is true, it is
	// a directory.
	Content []byte
	Link    string
	Dir     bool
}

// Spec describes the content of an image.
type Spec struct {
	Platform v1.Platform
	// Files are the files of the image's only layer, in this order.
	Files  []File
	Config v1.Config
	// Made is the command that built the image. It appears in the history of the image.
	Made string
	// Fast makes the build faster by compressing less.
	Fast bool
}

// New builds an image.
func New(s Spec) (v1.Image, error) {
	content, err := archiveFiles(s.Files)
	if err != nil {
		return nil, err
	}
	level := gzip.DefaultCompression
	if s.Fast {
		level = gzip.BestSpeed
	}
	// Without the cache, the layer would be compressed once to compute its digest, and again for each write.
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(level), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), mutate.Addendum{
		Layer: layer, History: v1.History{CreatedBy: s.Made, Created: v1.Time{Time: Epoch}},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant, config.Created = s.Platform.OS, s.Platform.Architecture, s.Platform.Variant, v1.Time{Time: Epoch}
	config.Config = s.Config
	return mutate.ConfigFile(image, config)
}

// archiveFiles returns a tar archive of the files and of the directories that contain them.
func archiveFiles(files []File) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	made := map[string]bool{".": true}
	var directory func(name string, mode int64) error
	directory = func(name string, mode int64) error {
		if made[name] {
			return nil
		}
		if err := directory(path.Dir(name), 0o755); err != nil {
			return err
		}
		made[name] = true
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, ModTime: Epoch, Format: tar.FormatUSTAR})
	}
	for _, f := range files {
		if f.Dir {
			if err := directory(f.Path, f.Mode); err != nil {
				return nil, err
			}
			continue
		}
		if err := directory(path.Dir(f.Path), 0o755); err != nil {
			return nil, err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: f.Mode, Size: int64(len(f.Content)), ModTime: Epoch, Format: tar.FormatUSTAR}
		if f.Link != "" {
			header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, f.Link, 0
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		if f.Link != "" {
			continue
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return buffer.Bytes(), w.Close()
}
