// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package compiler

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pruneFiles removes the scratch folders of killed processes, and then the least recently used files until the total
// size is at most maxCacheBytes. Entries become unused when a module, its limits or wazero change.
func (c *codeCache) pruneFiles() error {
	entries, err := os.ReadDir(c.dir)
	err = ignoreGone(err)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), scratchPrefix) {
			continue
		}
		root := filepath.Join(c.dir, entry.Name())
		info, statErr := os.Stat(root)
		if statErr == nil && root != filepath.Dir(c.scratch) && time.Since(info.ModTime()) > abandonedAge {
			err = errors.Join(err, os.RemoveAll(root))
		}
	}
	return errors.Join(err, pruneFolder(c.dir, maxCacheBytes))
}

type cachedFile struct {
	path string
	size int64
	used time.Time
}

func pruneFolder(dir string, maxBytes int64) error {
	var files []cachedFile
	total := int64(0)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if err == nil && path != dir && strings.HasPrefix(entry.Name(), scratchPrefix) {
				return fs.SkipDir
			}
			return ignoreGone(err)
		}
		info, err := entry.Info()
		if err == nil {
			files = append(files, cachedFile{path, info.Size(), info.ModTime()})
			total += info.Size()
		}
		return ignoreGone(err)
	})
	slices.SortFunc(files, func(a, b cachedFile) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path)) })
	for _, file := range files {
		if total <= maxBytes {
			break
		}
		err = errors.Join(err, ignoreGone(os.Remove(file.path)))
		total -= file.size
	}
	return err
}

// ignoreGone returns nil if the error says that the file does not exist, because another process may have removed it.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
