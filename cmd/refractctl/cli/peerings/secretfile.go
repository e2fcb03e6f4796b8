// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peerings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// secretFile is a file for credentials that only its owner can read. An existing file with the same name is not
// replaced until the new file is complete.
type secretFile struct {
	path    string
	pending *os.File
}

// newSecretFile creates the pending file. It is called before credentials are issued, so that credentials are not
// lost if the file cannot be written.
func newSecretFile(path string) (*secretFile, error) {
	switch found, err := os.Lstat(path); {
	case err == nil && !found.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file: name another file", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	pending, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // os.CreateTemp uses mode 0600
	if err != nil {
		return nil, err
	}
	return &secretFile{path: path, pending: pending}, nil
}

// writeContent writes the content, and renames the file to its final name.
func (f *secretFile) writeContent(content []byte) error {
	_, err := f.pending.Write(content)
	if err = errors.Join(err, f.pending.Sync(), f.pending.Close()); err != nil {
		return fmt.Errorf("writing %s, %w", f.path, err)
	}
	return os.Rename(f.pending.Name(), f.path)
}

// discardPending removes the pending file if it was not renamed.
func (f *secretFile) discardPending() {
	_ = f.pending.Close()
	_ = os.Remove(f.pending.Name())
}

// exposedMode returns the mode of the file that out writes to if users other than its owner can access it, and 0
// otherwise. Shells create such files when output is redirected.
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
