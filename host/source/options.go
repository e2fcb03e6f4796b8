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

// Options are the options of a module, in YAML.
type Options struct {
	// Config is the configuration that the plugin reads.
	Config map[string]any `json:"config,omitzero"`
	// Limits are the limits of the plugin. Fields left out have the host's defaults.
	Limits Limits `json:"limits,omitzero"`
	// Priority orders the plugins of a chain, the lowest first. The default is 0.
	Priority int `json:"priority,omitempty"`
	// Kinds narrows the kinds of the manifest: "Service", "Ingress.networking.k8s.io". If nil, the manifest decides; if
	// empty, there are none. It is required for a module without a manifest.
	Kinds []string `json:"kinds,omitzero"`
	// Writes narrows the paths of the manifest. If nil, the manifest decides; if empty, the plugin may write nothing.
	// It is required for a module without a manifest.
	Writes []string `json:"writes,omitzero"`
	// Capabilities narrows the capabilities of the manifest: "skip". If nil, the manifest decides; if empty, there are
	// none. A module without a manifest has only these.
	Capabilities []string `json:"capabilities,omitzero"`
	// Replaces is the name of a default plugin that this one replaces.
	Replaces string `json:"replaces,omitempty"`
	// Fresh resets the plugin before each call: it keeps no state from one object to the next, not even within a
	// namespace.
	Fresh bool `json:"fresh,omitempty"`
	// IgnoreFailure continues the chain, with a warning, if this plugin fails.
	IgnoreFailure bool `json:"ignoreFailure,omitempty"`
}

// Limits are host.Limits in the format of the options file; see there for units and defaults.
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

// decodeOptions decodes the YAML of a file, whose name is used in warnings. Whole numbers stay whole, as in Kubernetes
// objects. An unknown field is an error. So is a null list that restricts the plugin: a key whose entries were all
// commented out would lift the restriction.
func (o *Options) decodeOptions(text []byte, file string) (warnings []string, err error) {
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

// checkLists returns an error if a list that restricts the plugin is null.
func checkLists(fields map[string]any) error {
	for _, list := range []string{"kinds", "writes", "capabilities"} {
		if value, there := fields[list]; there && value == nil {
			return fmt.Errorf("%s is null: write [] for none, or remove the key for what the plugin declares", list)
		}
	}
	return nil
}

// zeroLimits returns warnings about zero limits, which look stricter than they are.
func zeroLimits(fields map[string]any) (warnings []string) {
	limits, _ := fields["limits"].(map[string]any)
	for _, limit := range slices.Sorted(maps.Keys(limits)) {
		if limits[limit] == int64(0) {
			warnings = append(warnings, fmt.Sprintf("limits.%s is 0, which stands for the default", limit))
		}
	}
	return warnings
}

// checkOneDocument returns an error if the text has further documents, which would be ignored.
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

// PluginConfig returns the options that the host needs.
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

// Matches reports whether a plugin with these options runs on the objects of a kind. The kind includes its API group
// unless that is the core group.
func (o *Options) Matches(manifest *host.Manifest, kind string, hook host.Hook) bool {
	name, group, _ := strings.Cut(kind, ".")
	return o.MatchesManifest(manifest, kind, hook) && (o.Kinds == nil || host.MatchesKind(o.Kinds, name, group))
}

// MatchesManifest reports whether the manifest allows the kind, regardless of the restriction by the options. The
// options may name Secrets, which "*" in a manifest does not include.
func (o *Options) MatchesManifest(manifest *host.Manifest, kind string, hook host.Hook) bool {
	name, group, _ := strings.Cut(kind, ".")
	return manifest.Matches(name, group, hook) ||
		slices.Contains(manifest.Hooks, hook.String()) && slices.Contains(manifest.Kinds, "*") && host.MatchesKind(o.Kinds, name, group)
}
