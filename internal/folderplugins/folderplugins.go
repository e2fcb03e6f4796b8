// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package folderplugins describes the plugins in the folder of a virtual kubelet in an annotation of its Node. The
// virtual kubelet writes the annotation, and refractctl reads it. The annotation contains no configuration of plugins,
// no messages and no values.
package folderplugins

import (
	"encoding/json"
	"fmt"
)

// Annotation is the annotation of a virtual Node.
const Annotation = "plugins.refract.io/folder-plugins"

// maxBytes is the maximum size of the annotation. A Node contains the annotation twice, because the record of the
// Node's last write contains it, too. All annotations of a Node together may have 256 KiB.
const maxBytes = 32 << 10

// Plugin is a plugin in the folder of a virtual kubelet.
type Plugin struct {
	Name string `json:"name"`
	// State is Loaded or Failed.
	State string `json:"state"`
	// IsRunning is true if the plugin is part of chains. If State is Failed, an earlier version of the plugin runs.
	IsRunning bool `json:"running"`
	// Version, Kinds, Hooks, Priority and Replaces belong to the version that runs. Kinds are the kinds whose chains
	// contain the plugin.
	Version  string   `json:"version,omitempty"`
	Kinds    []string `json:"kinds,omitempty"`
	Hooks    []string `json:"hooks,omitempty"`
	Priority int32    `json:"priority,omitempty"`
	Replaces string   `json:"replaces,omitempty"`
	// Held lists the kinds whose objects are held because the plugin cannot run: nothing is written or deleted for
	// them.
	Held []string `json:"held,omitempty"`
}

// List is the value of the annotation.
type List struct {
	Plugins []Plugin `json:"plugins"`
	// Omitted is the number of plugins that do not fit into the annotation.
	Omitted int `json:"omitted,omitempty"`
}

// Encode returns the value of the annotation, empty if there are no plugins.
func Encode(plugins []Plugin) (string, error) {
	if len(plugins) == 0 {
		return "", nil
	}
	list, left := List{Omitted: len(plugins)}, maxBytes-len(`{"plugins":[],"omitted":1000000}`)
	for i := range plugins {
		text, err := json.Marshal(&plugins[i])
		if err != nil {
			return "", fmt.Errorf("describing plugin %s, %w", plugins[i].Name, err)
		}
		if left -= len(text) + 1; left < 0 {
			break
		}
		list.Plugins = append(list.Plugins, plugins[i])
		list.Omitted--
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// Decode returns the plugins of a Node with these annotations.
func Decode(annotations map[string]string) (list List, err error) {
	text, ok := annotations[Annotation]
	if !ok {
		return list, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return List{}, fmt.Errorf("reading the annotation %s, %w", Annotation, err)
	}
	return list, nil
}
