// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host"
)

// Options configure a module, in YAML.
type Options struct {
	// Config is what the plugin reads as its configuration.
	Config map[string]any `json:"config,omitzero"`
	// Limits of the plugin; what is left out is the host's default.
	Limits Limits `json:"limits,omitzero"`
	// Priority orders the plugins of a chain, the lowest first. 0 when left out.
	Priority int `json:"priority,omitempty"`
	// Kinds narrows the kinds of the manifest: "Service", "Ingress.networking.k8s.io". Nil leaves them, empty is none. A module
	// without a manifest needs it.
	Kinds []string `json:"kinds,omitzero"`
	// Writes narrows the paths of the manifest. Nil leaves them, empty is none: the plugin may write nothing. A module without a
	// manifest needs it.
	Writes []string `json:"writes,omitzero"`
	// Capabilities narrows the capabilities of the manifest: "skip". Nil leaves them, empty is none. A module without a manifest has none
	// but these.
	Capabilities []string `json:"capabilities,omitzero"`
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

// isZero reports whether nothing is set.
func (o *Options) isZero() bool { return reflect.ValueOf(*o).IsZero() }

// decode reads the YAML of a file, which warnings name. Whole numbers stay whole, as in any object of Kubernetes. An unknown field is an error, and so is a list
// that restricts the plugin and is null: a key whose entries were all commented out would lift the restriction.
func (o *Options) decode(text []byte, file string) (warnings []string, err error) {
	if err := checkOneDocument(text); err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	unknown, err := json.UnmarshalStrict(data, o)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return []string{file + " is empty or has comments alone: the plugin runs without options; write {} if that is meant, or remove the file"}, nil
	}
	return zeroLimits(fields), checkLists(fields)
}

// checkLists refuses null for the lists that restrict the plugin.
func checkLists(fields map[string]any) error {
	for _, list := range []string{"kinds", "writes", "capabilities"} {
		if value, there := fields[list]; there && value == nil {
			return fmt.Errorf("%s is null: write [] for none, or remove the key for what the plugin declares", list)
		}
	}
	return nil
}

// zeroLimits warns of limits that look stricter than they are.
func zeroLimits(fields map[string]any) (warnings []string) {
	limits, _ := fields["limits"].(map[string]any)
	for _, limit := range slices.Sorted(maps.Keys(limits)) {
		if limits[limit] == int64(0) {
			warnings = append(warnings, fmt.Sprintf("limits.%s is 0, which stands for the default", limit))
		}
	}
	return warnings
}

// checkOneDocument refuses what would not be read.
func checkOneDocument(text []byte) error {
	documents := goyaml.NewDecoder(bytes.NewReader(text))
	for n := 0; ; n++ {
		var document any
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n > 0 && document != nil {
			return errors.New("it has a second YAML document, which would not be read: put all options into one")
		}
	}
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
	return o.MatchesManifest(manifest, kind, hook) && (o.Kinds == nil || host.MatchesKind(o.Kinds, name, group))
}

// MatchesManifest reports whether the manifest alone allows it, as Matches does without the restriction by the options. They may name the Secrets that
// "*" of a manifest leaves out.
func (o *Options) MatchesManifest(manifest *host.Manifest, kind string, hook host.Hook) bool {
	name, group, _ := strings.Cut(kind, ".")
	return manifest.Matches(name, group, hook) ||
		slices.Contains(manifest.Hooks, hook.String()) && slices.Contains(manifest.Kinds, "*") && host.MatchesKind(o.Kinds, name, group)
}
