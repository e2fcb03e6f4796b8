// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const wasmSuffix = ".wasm"

// optionsSuffixes are the suffixes of the options file next to a module.
var optionsSuffixes = []string{".yaml", ".yml"}

// folder is a snapshot of a plugin directory: its files by name, without hidden files. A nil FileInfo means that the
// entry exists, but is not read.
type folder struct {
	path  string
	files map[string]os.FileInfo
}

// readFolder lists the directory.
func readFolder(path string) (folder, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return folder{}, err
	}
	f := folder{path: path, files: map[string]os.FileInfo{}}
	for _, name := range entryNames(entries) {
		f.files[name] = nil
		if isModule(name) || isOptions(name) {
			f.files[name] = statFile(filepath.Join(path, name))
		}
	}
	return f, nil
}

// entryNames returns the names of the entries, without hidden files. Editors, programs that copy files, and the
// kubelet create hidden files that are not plugins.
func entryNames(entries []fs.DirEntry) (names []string) {
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	return names
}

func isModule(name string) bool { return filepath.Ext(name) == wasmSuffix }

func isOptions(name string) bool { return slices.Contains(optionsSuffixes, filepath.Ext(name)) }

func (f folder) hasFile(name string) bool {
	_, there := f.files[name]
	return there
}

func (f folder) fileNames() []string { return slices.Sorted(maps.Keys(f.files)) }

// moduleNames returns the names of all module files, and of options files without a module.
func (f folder) moduleNames() (names []string) {
	for _, name := range f.fileNames() {
		if isModule(name) || isOptions(name) && !f.hasFile(stemOf(name)+wasmSuffix) && !slices.Contains(names, stemOf(name)+optionsSuffixes[0]) {
			names = append(names, name)
		}
	}
	return names
}

func stemOf(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// errNoModule is the error for an options file without a module.
var errNoModule = errors.New("options without a plugin")

// readModule reads a module. If there are options but no module, it returns the options with an error, because the
// module may be lost, or its name may be misspelled.
func (f folder) readModule(name string) Module {
	shown := filepath.Join(f.path, name)
	if isOptions(name) {
		m := Module{Name: stemOf(name), Path: shown}
		m.hasOptions = m.readOptions(os.DirFS(f.path), m.Name) == nil
		m.Err = fmt.Errorf("%w: there is no %s.wasm beside %s: add it, or remove %s to remove the plugin", errNoModule, m.Name, name, name)
		return m
	}
	m := readModule(os.DirFS(f.path), name, shown)
	if m.Err == nil {
		m.setSpelling(f.fileNames())
	}
	return m
}

// setSpelling sets the error of checkSpelling as the error of the module, which must not run because its options are
// not known.
func (m *Module) setSpelling(names []string) {
	m.Err = checkSpelling(m.Name, names)
	m.hasOptions = m.hasOptions && m.Err == nil
}

// checkSpelling returns an error if the author probably meant another file to be the options of the module. Without
// this check, the plugin would run without the restrictions in this file.
func checkSpelling(plugin string, names []string) error {
	for _, name := range names {
		if !isOptions(name) && strings.EqualFold(stemOf(name), plugin) && slices.Contains(optionsSuffixes, strings.ToLower(filepath.Ext(name))) {
			return fmt.Errorf("reading options of plugin %s, %s is not read: rename it to %s.yaml", plugin, name, plugin)
		}
	}
	return nil
}

// ignoredFiles returns a status for each file that is neither a module nor options.
func (f folder) ignoredFiles() (statuses []Status) {
	for _, name := range f.fileNames() {
		if !isModule(name) && !isOptions(name) {
			statuses = append(statuses, Status{Name: name, Path: filepath.Join(f.path, name), State: Ignored, Message: adviceFor(name)})
		}
	}
	return statuses
}

func adviceFor(name string) string {
	lower := strings.ToLower(name)
	switch {
	case strings.HasSuffix(lower, wasmSuffix):
		return "not loaded: rename it to " + name[:len(name)-len(wasmSuffix)] + wasmSuffix
	case strings.Contains(lower, wasmSuffix+"."):
		return "not loaded: a plugin is an uncompressed module, in a file whose name ends with " + wasmSuffix
	case slices.Contains(optionsSuffixes, filepath.Ext(lower)):
		return "not read: the options of a plugin <name>.wasm are in <name>.yaml"
	}
	return "not read: a plugin is a file <name>.wasm, its options are in <name>.yaml; subdirectories are not read"
}

// sameAs reports whether the folder equals an earlier state.
func (f folder) sameAs(was folder) bool {
	return maps.EqualFunc(f.files, was.files, sameFile)
}

// statFile returns the FileInfo of a link's target. If the target does not exist, it returns the FileInfo of the link
// itself, so that a broken link differs from a missing file.
func statFile(file string) os.FileInfo {
	for _, describe := range []func(string) (os.FileInfo, error){os.Stat, os.Lstat} {
		if info, err := describe(file); err == nil {
			return info
		}
	}
	return nil
}

// sameFile reports whether a file is unchanged. It compares the change time of the inode, because a writer can
// restore the size and the modification time, but not this time.
func sameFile(was, is os.FileInfo) bool {
	if was == nil || is == nil {
		return was == nil && is == nil
	}
	return os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime()) && changeTime(was).Equal(changeTime(is))
}

// timestampGrace is a time that is longer than the resolution of time stamps on any file system.
const timestampGrace = 2 * time.Second

// isConclusive reports whether any change to the file after readAt would also change its FileInfo. This is the case if
// the time stamp of the file is older than readAt by more than the resolution of time stamps.
func isConclusive(info os.FileInfo, readAt time.Time) bool {
	return info == nil || readAt.Sub(changeTime(info)) > timestampGrace
}
