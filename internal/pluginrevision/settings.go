// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pluginrevision decodes PluginRevisions: the settings, as options of the host, and the module, from
// PluginModules. The controller manager and the virtual kubelets both use this package, so that a module runs with
// exactly the settings with which it was accepted.
package pluginrevision

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host/source"
)

// DecodeOptions converts settings to the options of a module. An error refers to the field config. Selectors are not
// part of the options.
func DecodeOptions(settings *plugins.PluginSettings) (source.Options, error) {
	options := source.Options{
		Priority: int(settings.Priority), Kinds: settings.Kinds, Writes: settings.Writes, Replaces: settings.Replaces,
		IgnoreFailure: settings.FailurePolicy == plugins.IgnorePluginPolicy, Capabilities: []string{},
	}
	for _, capability := range settings.Capabilities {
		options.Capabilities = append(options.Capabilities, string(capability))
	}
	if l := settings.Limits; l != nil {
		options.Limits = source.Limits{
			Fuel: l.Fuel, MemoryPages: int(l.MemoryPages), OutputBytes: int(l.OutputBytes), CallDepth: int(l.CallDepth),
			ModuleBytes: int(l.ModuleBytes), Handles: int(l.Handles),
		}
	}
	var err error
	options.Config, err = DecodeConfig(settings.Config)
	return options, err
}

// DecodeConfig decodes a configuration. Whole numbers become integers. It returns nil if there is no configuration.
func DecodeConfig(config *runtime.RawExtension) (decoded map[string]any, err error) {
	if config == nil || len(config.Raw) == 0 {
		return nil, nil
	}
	return decoded, json.UnmarshalCaseSensitivePreserveInts(config.Raw, &decoded)
}
