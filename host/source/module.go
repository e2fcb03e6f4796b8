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

// maxFileBytes is far above any module that the host takes by default, and keeps a wrong file (a disk image, a
// core dump) out of the memory of the process.
const maxFileBytes = 128 << 20

// Module is a plugin that was found, but not loaded yet.
type Module struct {
	// Name is the name of the file without ".wasm". It names the plugin in errors, events and metrics.
	Name string
	// Path is where it was found.
	Path string
	// Wasm is the binary.
	Wasm []byte
	// Options come from the file <name>.yaml beside it.
	Options Options
	// OptionsText is that file as it was read; nil if there was none.
	OptionsText []byte
	// Err says why it could not be read; Wasm and Options are not usable then.
	Err error

	warnings []string // about its options
}

// ReadFS finds all modules below the root of fsys, such as an embedded one. Errors are about fsys; what is wrong
// with one module is in its Err.
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

// ReadDir finds the modules of one directory, without its subdirectories. Files may be symbolic links.
// Errors are about the directory; what is wrong with one module is in its Err.
func ReadDir(dir string) ([]Module, error) {
	found, err := look(dir)
	if err != nil {
		return nil, err
	}
	var modules []Module
	for _, name := range found.modules() {
		modules = append(modules, found.read(name))
	}
	return modules, nil
}

// ReadFile reads the module in one file, and its options beside it.
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

// readOptions reads the file of the options, if there is one.
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
			m.warnings, err = m.Options.decode(text, path.Base(from))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	return nil
}

// isListed reports whether there is a file of the name, if only a link that leads nowhere.
func isListed(fsys fs.FS, name string) bool {
	_, err := fs.Lstat(fsys, name)
	return !errors.Is(err, fs.ErrNotExist)
}

// readFile reads a regular file. Anything else, a pipe for one, could block forever.
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
