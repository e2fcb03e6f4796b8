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
	"slices"
	"strings"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host"
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
	// Err says why it could not be read; Wasm and Options are not usable then.
	Err error
}

// Options configure a module, in YAML.
type Options struct {
	// Config is what the plugin reads as its configuration.
	Config map[string]any `json:"config,omitempty"`
	// Limits of the plugin; what is left out is the host's default.
	Limits Limits `json:"limits,omitzero"`
	// Priority orders the plugins of a chain, the lowest first. 0 when left out.
	Priority int `json:"priority,omitempty"`
	// Kinds narrows the kinds of the manifest: "Service", "Ingress.networking.k8s.io". A module without a manifest needs it.
	Kinds []string `json:"kinds,omitempty"`
	// Writes narrows the paths of the manifest. A module without a manifest needs it.
	Writes []string `json:"writes,omitempty"`
	// Capabilities of a module without a manifest: "skip".
	Capabilities []string `json:"capabilities,omitempty"`
	// Replaces names a default plugin that this one stands in for.
	Replaces string `json:"replaces,omitempty"`
	// Fresh gives each call a clean slate: the plugin remembers nothing from one object to the next, not even of the same
	// namespace.
	Fresh bool `json:"fresh,omitempty"`
	// IgnoreFailure lets the chain go on, with a warning, when this plugin fails.
	IgnoreFailure bool `json:"ignoreFailure,omitempty"`
}

// Limits are host.Limits as they are written in a file; see there for units and defaults.
type Limits struct {
	Fuel        int64 `json:"fuel,omitempty"`
	MemoryPages int   `json:"memoryPages,omitempty"`
	OutputBytes int   `json:"outputBytes,omitempty"`
	CallDepth   int   `json:"callDepth,omitempty"`
	ModuleBytes int   `json:"moduleBytes,omitempty"`
	Handles     int   `json:"handles,omitempty"`
}

// ReadFS finds all modules below the root of fsys, such as an embedded one. Errors are about fsys; what is wrong
// with one module is in its Err.
func ReadFS(fsys fs.FS) ([]Module, error) {
	var modules []Module
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && path.Ext(name) == ".wasm" {
			modules = append(modules, read(fsys, name, name))
		}
		return err
	})
	return modules, err
}

// ReadDir finds the modules of one directory, without its subdirectories. Files may be symbolic links.
// Errors are about the directory; what is wrong with one module is in its Err.
func ReadDir(dir string) ([]Module, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var modules []Module
	for _, name := range candidates(entries) {
		if m, ok := readModule(os.DirFS(dir), name, filepath.Join(dir, name)); ok {
			modules = append(modules, m)
		}
	}
	return modules, nil
}

// candidates are the names of the files that may be modules, or options that lack theirs.
func candidates(entries []fs.DirEntry) (names []string) {
	for _, entry := range entries {
		name := entry.Name()
		if ext := filepath.Ext(name); !strings.HasPrefix(name, ".") && (ext == ".wasm" || ext == ".yaml") {
			names = append(names, name)
		}
	}
	return names
}

// readModule reads a module, or reports options without a module. False: the file is the options of a module that is there.
func readModule(fsys fs.FS, name, shown string) (Module, bool) {
	if filepath.Ext(name) == ".wasm" {
		return read(fsys, name, shown), true
	}
	return optionsAlone(fsys, name, shown)
}

// optionsOf is where the options of a module are.
func optionsOf(wasm string) string { return strings.TrimSuffix(wasm, ".wasm") + ".yaml" }

// ReadFile reads the module in one file, and its options beside it.
func ReadFile(file string) Module {
	return read(os.DirFS(filepath.Dir(file)), filepath.Base(file), file)
}

func read(fsys fs.FS, name, shown string) Module {
	m := Module{Name: strings.TrimSuffix(path.Base(name), ".wasm"), Path: shown}
	if m.Wasm, m.Err = readFile(fsys, name); m.Err != nil {
		return m
	}
	options := optionsOf(name)
	text, err := readFile(fsys, options)
	if errors.Is(err, fs.ErrNotExist) {
		return m
	}
	if err == nil {
		err = m.Options.decode(text)
	}
	if err != nil {
		m.Err = fmt.Errorf("reading options of plugin %s from %s, %w", m.Name, options, err)
	}
	return m
}

// decode reads YAML. Whole numbers stay whole, as in any object of Kubernetes, and an unknown field is an error.
func (o *Options) decode(text []byte) error {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	unknown, err := json.UnmarshalStrict(data, o)
	return errors.Join(append(unknown, err)...)
}

// errNoModule is the error of options without a module.
var errNoModule = errors.New("options without a plugin")

// optionsAlone reports options without a module: a typing error in the name of either would go unnoticed.
func optionsAlone(fsys fs.FS, name, shown string) (Module, bool) {
	plugin := strings.TrimSuffix(name, ".yaml")
	if _, err := fs.Stat(fsys, plugin+".wasm"); !errors.Is(err, fs.ErrNotExist) {
		return Module{}, false
	}
	return Module{Name: plugin, Path: shown, Err: fmt.Errorf("%w: there is no %s.wasm beside %s", errNoModule, plugin, name)}, true
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

// PluginConfig is what the host needs of the options.
func (o *Options) PluginConfig() host.PluginConfig {
	return host.PluginConfig{
		Config: o.Config,
		Limits: host.Limits{
			Fuel:        o.Limits.Fuel,
			MemoryPages: o.Limits.MemoryPages,
			OutputBytes: o.Limits.OutputBytes,
			CallDepth:   o.Limits.CallDepth,
			ModuleBytes: o.Limits.ModuleBytes,
			Handles:     o.Limits.Handles,
		},
		Writes:        o.Writes,
		Kinds:         o.Kinds,
		Capabilities:  o.Capabilities,
		Fresh:         o.Fresh,
		IgnoreFailure: o.IgnoreFailure,
	}
}

// CheckReplaces returns an error if the options replace a default plugin that is not among defaults.
func (o *Options) CheckReplaces(defaults []Module) error {
	if o.Replaces == "" {
		return nil
	}
	var names []string
	for _, d := range defaults {
		names = append(names, d.Name)
	}
	if slices.Contains(names, o.Replaces) {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("replaces: there is no default plugin %q (there are %s)", o.Replaces, strings.Join(names, ", "))
}

// Matches reports whether a plugin with these options runs on the objects of a kind, which has its API group unless that is the core group.
func (o *Options) Matches(manifest *host.Manifest, kind string, hook host.Hook) bool {
	name, group, _ := strings.Cut(kind, ".")
	return o.MatchesManifest(manifest, kind, hook) && (len(o.Kinds) == 0 || host.MatchesKind(o.Kinds, name, group))
}

// MatchesManifest reports whether the manifest alone allows it, as Matches does without the restriction by the options. They may name the Secrets that
// "*" of a manifest leaves out.
func (o *Options) MatchesManifest(manifest *host.Manifest, kind string, hook host.Hook) bool {
	name, group, _ := strings.Cut(kind, ".")
	return manifest.Matches(name, group, hook) ||
		slices.Contains(manifest.Hooks, hook.String()) && slices.Contains(manifest.Kinds, "*") && host.MatchesKind(o.Kinds, name, group)
}
