// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// secretFile is a file for credentials, which only its owner can read. Until it is complete, what had its name before stays.
type secretFile struct {
	path    string
	pending *os.File
}

// newSecretFile returns an error if the file could not be written: before there are credentials that would be lost.
func newSecretFile(path string) (*secretFile, error) {
	switch found, err := os.Lstat(path); {
	case err == nil && !found.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: name another file", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	pending, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // with mode 0600
	if err != nil {
		return nil, err
	}
	return &secretFile{path: path, pending: pending}, nil
}

// writeContent writes the content, and gives the file its name.
func (f *secretFile) writeContent(content []byte) error {
	_, err := f.pending.Write(content)
	if err = errors.Join(err, f.pending.Sync(), f.pending.Close()); err != nil {
		return fmt.Errorf("writing %s, %w", f.path, err)
	}
	return os.Rename(f.pending.Name(), f.path)
}

// discardPending removes the pending file, if it was not renamed.
func (f *secretFile) discardPending() {
	_ = f.pending.Close()
	_ = os.Remove(f.pending.Name())
}

// exposedMode returns the mode of the file that out is if users other than its owner can read it, 0 otherwise: the shell creates such files.
func exposedMode(out io.Writer) fs.FileMode {
	file, ok := out.(*os.File)
	if !ok {
		return 0
	}
	found, err := file.Stat()
	if err != nil || !found.Mode().IsRegular() || found.Mode().Perm()&0o077 == 0 {
		return 0
	}
	return found.Mode().Perm()
}
