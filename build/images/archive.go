// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/refract-project/refract/internal/image"
)

// writeArchive writes an OCI image layout as a tar archive, which ctr, skopeo, crane and podman can read.
func writeArchive(path string, index v1.ImageIndex, tag string) (err error) {
	dir, err := os.MkdirTemp("", "refract-layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	stored, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := stored.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := tar.NewWriter(file)
	err = addFiles(w, os.DirFS(dir))
	return errors.Join(err, w.Close(), file.Close())
}

// addFiles adds the files to the archive, sorted by name.
func addFiles(w *tar.Writer, files fs.FS) error {
	return fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: 0o755, ModTime: image.Epoch, Format: tar.FormatUSTAR}
		if entry.IsDir() {
			return w.WriteHeader(header)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		header.Typeflag, header.Name, header.Mode, header.Size = tar.TypeReg, path, 0o644, info.Size()
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		file, err := files.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, file)
		return errors.Join(err, file.Close())
	})
}
