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

// maxFileBytes is the maximum size of a module file. It is far above the size of the modules that the host accepts by
// default. The limit keeps the process from reading a wrong file, such as a disk image or a core dump, into memory.
const maxFileBytes = 128 << 20

// Module is a plugin that was found, but is not loaded yet.
type Module struct {
	// Name is the name of the plugin in errors, events and metrics: the file name without ".wasm".
	Name string
	// Path is the path of the file.
	Path string
	// Wasm is the binary.
	Wasm []byte
	// Options are the options from the file <name>.yaml in the same folder.
	Options Options
	// OptionsText is the content of the options file, or nil if there is none.
	OptionsText []byte
	// Err is the error that occurred when the module was read. If it is set, Wasm and Options must not be used.
	Err error

	warnings   []string // warnings about the options
	hasOptions bool     // whether the options could be read, although Err is set
}

// ReadFS finds all modules below the root of fsys, such as an embedded file system. The returned error concerns fsys.
// The error of a module is in its field Err.
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

// ReadDir finds all modules in a directory, without subdirectories. Files may be symbolic links. The returned error
// concerns the directory. The error of a module is in its field Err.
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

// ReadFile reads the module in a file, and its options from the same folder.
func ReadFile(file string) Module {
	dir := filepath.Dir(file)
	m := readModule(os.DirFS(dir), filepath.Base(file), file)
	if m.Err == nil && m.OptionsText == nil {
		if entries, err := os.ReadDir(dir); err == nil {
			m.setSpelling(entryNames(entries))
		}
	}
	return m
}

func readModule(fsys fs.FS, name, shown string) Module {
	m := Module{Name: strings.TrimSuffix(path.Base(name), wasmSuffix), Path: shown}
	m.Wasm, m.Err = readFile(fsys, name)
	err := m.readOptions(fsys, strings.TrimSuffix(name, wasmSuffix))
	if m.hasOptions = err == nil; err != nil && m.Err == nil {
		m.Err = fmt.Errorf("reading options of plugin %s, %w", m.Name, err)
	}
	return m
}

// readOptions reads the options file, if it exists.
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

// isListed reports whether a file with the name exists. A link whose target is missing also counts.
func isListed(fsys fs.FS, name string) bool {
	_, err := fs.Lstat(fsys, name)
	return !errors.Is(err, fs.ErrNotExist)
}

// readFile reads a regular file. It returns an error for other files, such as pipes, because reading them could block
// forever.
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
