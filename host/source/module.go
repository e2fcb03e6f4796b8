// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxFileBytes is far above the size of any module that the host accepts by default. It keeps a wrong file (a disk
// image, a core dump) out of the memory of the process.
const maxFileBytes = 128 << 20

// Module is a plugin that was found but not loaded yet.
type Module struct {
	// Name is the file name without ".wasm". It names the plugin in errors, events and metrics.
	Name string
	// Path is the path of the file.
	Path string
	// Wasm is the binary.
	Wasm []byte
	// Options come from the file <name>.yaml next to it.
	Options Options
	// OptionsText is the content of that file; nil if there was none.
	OptionsText []byte
	// Err is the error of reading the module; Wasm and Options are then not usable.
	Err error

	warnings []string // about the options
}

// ReadFS finds all modules below the root of fsys, such as an embedded one. The returned error is about fsys; the error
// of a module is in its Err.
func ReadFS(fsys fs.FS) ([]Module, error) {
	var modules []Module
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && path.Ext(name) == ".wasm" {
			modules = append(modules, readModule(fsys, name, name))
		}
		return err
	})
	return modules, err
}

// ReadDir finds the modules of one directory, without its subdirectories. Files may be symbolic links. The returned
// error is about the directory; the error of a module is in its Err.
func ReadDir(dir string) ([]Module, error) {
	found, err := readFolder(dir)
	if err != nil {
		return nil, err
	}
	var modules []Module
	for _, name := range found.moduleNames() {
		modules = append(modules, found.readModule(name))
	}
	return modules, nil
}

// ReadFile reads the module in one file, and the options next to it.
func ReadFile(file string) Module {
	dir := filepath.Dir(file)
	m := readModule(os.DirFS(dir), filepath.Base(file), file)
	if m.Err == nil && m.OptionsText == nil {
		if entries, err := os.ReadDir(dir); err == nil {
			m.Err = checkSpelling(m.Name, entryNames(entries))
		}
	}
	return m
}

func readModule(fsys fs.FS, name, shown string) Module {
	m := Module{Name: strings.TrimSuffix(path.Base(name), wasmSuffix), Path: shown}
	if m.Wasm, m.Err = readFile(fsys, name); m.Err != nil {
		return m
	}
	if err := m.readOptions(fsys, strings.TrimSuffix(name, wasmSuffix)); err != nil {
		m.Err = fmt.Errorf("reading options of plugin %s, %w", m.Name, err)
	}
	return m
}

// readOptions reads the options file, if there is one.
func (m *Module) readOptions(fsys fs.FS, stem string) error {
	from := ""
	for _, suffix := range optionsSuffixes {
		text, err := readFile(fsys, stem+suffix)
		if errors.Is(err, fs.ErrNotExist) && !isListed(fsys, stem+suffix) {
			continue
		}
		if err == nil && from != "" {
			err = fmt.Errorf("there is %s as well: remove one of them", from)
		}
		if from = stem + suffix; err == nil {
			m.OptionsText = text
			m.warnings, err = m.Options.decodeOptions(text, path.Base(from))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	return nil
}

// isListed reports whether there is a file with the name, even if it is a link without a target.
func isListed(fsys fs.FS, name string) bool {
	_, err := fs.Lstat(fsys, name)
	return !errors.Is(err, fs.ErrNotExist)
}

// readFile reads a regular file. Other files, such as a pipe, could block forever.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, maxFileBytes>>20)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d MiB", name, maxFileBytes>>20)
	}
	return data, err
}
