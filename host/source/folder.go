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

// optionsSuffixes of the file beside a module.
var optionsSuffixes = []string{".yaml", ".yml"}

// folder is a directory of plugins at one moment: its files by name, without the hidden ones. Nil is a file that is not read.
type folder struct {
	path  string
	files map[string]os.FileInfo
}

// look lists the directory.
func look(path string) (folder, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return folder{}, err
	}
	f := folder{path: path, files: map[string]os.FileInfo{}}
	for _, name := range entryNames(entries) {
		f.files[name] = nil
		if isModule(name) || isOptions(name) {
			f.files[name] = stat(filepath.Join(path, name))
		}
	}
	return f, nil
}

// entryNames returns the names of the entries without hidden files, which editors, unfinished copies and the kubelet make.
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

func (f folder) has(name string) bool {
	_, there := f.files[name]
	return there
}

func (f folder) names() []string { return slices.Sorted(maps.Keys(f.files)) }

// modules are the names of the files that are modules, or options that lack theirs.
func (f folder) modules() (names []string) {
	for _, name := range f.names() {
		if isModule(name) || isOptions(name) && !f.has(stemOf(name)+wasmSuffix) {
			names = append(names, name)
		}
	}
	return names
}

func stemOf(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// errNoModule is the error of options without a module.
var errNoModule = errors.New("options without a plugin")

// read reads a module, or reports options without one: a typing error in the name of either would go unnoticed.
func (f folder) read(name string) Module {
	shown := filepath.Join(f.path, name)
	if isOptions(name) {
		plugin := stemOf(name)
		return Module{Name: plugin, Path: shown, Err: fmt.Errorf("%w: there is no %s.wasm beside %s", errNoModule, plugin, name)}
	}
	m := readModule(os.DirFS(f.path), name, shown)
	if m.Err == nil {
		m.Err = checkSpelling(m.Name, f.names())
	}
	return m
}

// checkSpelling refuses a module with a file that its author takes for its options: the plugin would run without what they
// restrict.
func checkSpelling(plugin string, names []string) error {
	for _, name := range names {
		if !isOptions(name) && strings.EqualFold(stemOf(name), plugin) && slices.Contains(optionsSuffixes, strings.ToLower(filepath.Ext(name))) {
			return fmt.Errorf("reading options of plugin %s, %s is not read: rename it to %s.yaml", plugin, name, plugin)
		}
	}
	return nil
}

// ignored lists the files that are neither modules nor options, as statuses.
func (f folder) ignored() (statuses []Status) {
	for _, name := range f.names() {
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

// sameAs reports whether the folder looks as it did.
func (f folder) sameAs(was folder) bool {
	return maps.EqualFunc(f.files, was.files, sameFile)
}

// stat describes what a file leads to, or the file itself if it leads nowhere: a link without a target is not as if there were none.
func stat(file string) os.FileInfo {
	for _, describe := range []func(string) (os.FileInfo, error){os.Stat, os.Lstat} {
		if info, err := describe(file); err == nil {
			return info
		}
	}
	return nil
}

// sameFile reports whether a file looks as it did. Whoever writes it can put back its size and its time stamp, but not the time of
// the last change of its inode.
func sameFile(was, is os.FileInfo) bool {
	if was == nil || is == nil {
		return was == nil && is == nil
	}
	return os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime()) && changeTime(was).Equal(changeTime(is))
}

// timeGrain is more than the grain of time stamps of any file system.
const timeGrain = 2 * time.Second

// isConclusive reports whether a file that was read at a time would look different after any later change: the change would not be
// within the grain of the same time stamp.
func isConclusive(info os.FileInfo, readAt time.Time) bool {
	return info == nil || readAt.Sub(changeTime(info)) > timeGrain
}
