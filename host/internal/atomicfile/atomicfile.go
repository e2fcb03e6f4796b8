// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile writes files atomically: if writing fails, the file keeps its old content.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	tempPrefix = ".tmp-"
	// abandonedAge is the age after which a temporary file counts as left over from a killed process.
	abandonedAge = time.Hour
)

// Write replaces the content of path, and creates missing folders. If path is a file, a link or a folder, it is
// replaced. A power failure may damage the content, so callers must verify it with a digest when they read it.
func Write(path string, content []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = replaceFile(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

func replaceFile(temp, path string) error {
	err := os.Rename(temp, path)
	if info, statErr := os.Lstat(path); err == nil || statErr != nil || !info.IsDir() {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// RemoveAbandoned removes temporary files from dir that were left behind by processes killed during Write. Files
// younger than abandonedAge are kept, because their writer may still be running.
func RemoveAbandoned(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		info, infoErr := entry.Info()
		if infoErr == nil && strings.HasPrefix(entry.Name(), tempPrefix) && time.Since(info.ModTime()) > abandonedAge {
			err = errors.Join(err, os.Remove(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}
