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

// folder is a snapshot of a plugin directory: its files by name, without hidden ones. A nil FileInfo is a file that is
// not read.
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

// entryNames returns the names of the entries without hidden files, which editors, unfinished copies and the kubelet
// create.
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

// moduleNames returns the names of the module files, and of options files without a module.
func (f folder) moduleNames() (names []string) {
	for _, name := range f.fileNames() {
		if isModule(name) || isOptions(name) && !f.hasFile(stemOf(name)+wasmSuffix) {
			names = append(names, name)
		}
	}
	return names
}

func stemOf(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// errNoModule is the error of options without a module.
var errNoModule = errors.New("options without a plugin")

// readModule reads a module. Options without a module are an error: otherwise a misspelled name would go unnoticed.
func (f folder) readModule(name string) Module {
	shown := filepath.Join(f.path, name)
	if isOptions(name) {
		plugin := stemOf(name)
		return Module{Name: plugin, Path: shown, Err: fmt.Errorf("%w: there is no %s.wasm beside %s", errNoModule, plugin, name)}
	}
	m := readModule(os.DirFS(f.path), name, shown)
	if m.Err == nil {
		m.Err = checkSpelling(m.Name, f.fileNames())
	}
	return m
}

// checkSpelling returns an error if the author probably meant another file as the module's options: the plugin would
// run without their restrictions.
func checkSpelling(plugin string, names []string) error {
	for _, name := range names {
		if !isOptions(name) && strings.EqualFold(stemOf(name), plugin) && slices.Contains(optionsSuffixes, strings.ToLower(filepath.Ext(name))) {
			return fmt.Errorf("reading options of plugin %s, %s is not read: rename it to %s.yaml", plugin, name, plugin)
		}
	}
	return nil
}

// ignoredFiles returns statuses for the files that are neither modules nor options.
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

// sameAs reports whether the folder is unchanged.
func (f folder) sameAs(was folder) bool {
	return maps.EqualFunc(f.files, was.files, sameFile)
}

// statFile returns the info of a file's target, or of the file itself if it is a link without a target: a broken link
// differs from a missing file.
func statFile(file string) os.FileInfo {
	for _, describe := range []func(string) (os.FileInfo, error){os.Stat, os.Lstat} {
		if info, err := describe(file); err == nil {
			return info
		}
	}
	return nil
}

// sameFile reports whether a file is unchanged. A writer can restore the size and the modification time, but not the
// change time of the inode.
func sameFile(was, is os.FileInfo) bool {
	if was == nil || is == nil {
		return was == nil && is == nil
	}
	return os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime()) && changeTime(was).Equal(changeTime(is))
}

// timeGrain is more than the resolution of the time stamps of any file system.
const timeGrain = 2 * time.Second

// isConclusive reports whether a file that was read at readAt would look different after any later change: its time
// stamp is older than the resolution.
func isConclusive(info os.FileInfo, readAt time.Time) bool {
	return info == nil || readAt.Sub(changeTime(info)) > timeGrain
}
