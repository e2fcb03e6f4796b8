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

// Options are the options of a module. They are usually read from a YAML file.
type Options struct {
	// Config is the configuration for the plugin itself.
	Config map[string]any `json:"config,omitzero"`
	// Limits are the limits of the plugin. The host's defaults apply to fields that are not set.
	Limits Limits `json:"limits,omitzero"`
	// Priority determines the order of plugins in a chain, the lowest first. Plugins with a negative priority run
	// before the default plugins. The default is 0.
	Priority int `json:"priority,omitempty"`
	// Kinds restricts the kinds of the manifest: "Service", "Ingress.networking.k8s.io". If it is nil, only the
	// manifest counts. If it is empty, the plugin has no kinds. It is required for a module without a manifest.
	Kinds []string `json:"kinds,omitzero"`
	// Writes restricts the paths of the manifest. If it is nil, only the manifest counts. If it is empty, the plugin
	// may not write. It is required for a module without a manifest.
	Writes []string `json:"writes,omitzero"`
	// Capabilities restricts the capabilities of the manifest. The only capability is "skip". If it is nil, only the
	// manifest counts. If it is empty, the plugin has no capabilities. For a module without a manifest, it lists all
	// capabilities.
	Capabilities []string `json:"capabilities,omitzero"`
	// Replaces is the name of a default plugin that this one replaces.
	Replaces string `json:"replaces,omitempty"`
	// Fresh means that the plugin is reset before each call, so that it keeps no state between objects, even in the
	// same namespace.
	Fresh bool `json:"fresh,omitempty"`
	// IgnoreFailure means that the chain continues with a warning if this plugin fails.
	IgnoreFailure bool `json:"ignoreFailure,omitempty"`
}

// Limits are host.Limits in the format of the options file. See host.Limits for the units and defaults.
type Limits struct {
	Fuel        int64 `json:"fuel,omitempty"`
	MemoryPages int   `json:"memoryPages,omitempty"`
	OutputBytes int   `json:"outputBytes,omitempty"`
	CallDepth   int   `json:"callDepth,omitempty"`
	ModuleBytes int   `json:"moduleBytes,omitempty"`
	Handles     int   `json:"handles,omitempty"`
}

// isZero reports whether no option is set.
func (o *Options) isZero() bool { return reflect.ValueOf(*o).IsZero() }

// decodeOptions decodes the YAML of a file, whose name is used in warnings. As in Kubernetes objects, whole numbers
// become int64. An unknown field is an error. A list that restricts the plugin must not be null: if all of its
// entries were commented out, the restriction would be lifted unnoticed.
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

// zeroLimits returns warnings about limits of 0, because they look strict but mean the default.
func zeroLimits(fields map[string]any) (warnings []string) {
	limits, _ := fields["limits"].(map[string]any)
	for _, limit := range slices.Sorted(maps.Keys(limits)) {
		if limits[limit] == int64(0) {
			warnings = append(warnings, fmt.Sprintf("limits.%s is 0, which stands for the default", limit))
		}
	}
	return warnings
}

// checkOneDocument returns an error if the text has further YAML documents, because they would be ignored.
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

// PluginConfig returns the options for the host.
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

// CheckReplaces returns an error if the options replace a default plugin that is not one of defaults.
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

// Matches reports whether a plugin with these options runs on objects of a kind. The kind includes its API group
// unless it is the core group.
func (o *Options) Matches(manifest *host.Manifest, kind string, hook host.Hook) bool {
	name, group, _ := strings.Cut(kind, ".")
	return o.MatchesManifest(manifest, kind, hook) && (o.Kinds == nil || host.MatchesKind(o.Kinds, name, group))
}

// MatchesManifest reports whether the manifest allows the kind, regardless of Kinds in the options. If the options
// name Secrets, "*" in the manifest includes them.
func (o *Options) MatchesManifest(manifest *host.Manifest, kind string, hook host.Hook) bool {
	name, group, _ := strings.Cut(kind, ".")
	return manifest.Matches(name, group, hook) ||
		slices.Contains(manifest.Hooks, hook.String()) && slices.Contains(manifest.Kinds, "*") && host.MatchesKind(o.Kinds, name, group)
}
