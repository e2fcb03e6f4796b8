// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package folderplugins describes the plugins in a virtual kubelet's plugin folder on its Node. An annotation describes
// each plugin, for refractctl. A condition shows whether all plugins are loaded. Everybody who may read Nodes can read
// both, so they contain no configurations or errors of plugins, and no values of objects.
package folderplugins

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/internal/printable"
)

// Annotation is the annotation of a virtual Node.
const Annotation = "plugins.refract.io/folder-plugins"

// maxBytes is the maximum size of the annotation. All annotations of a Node together may have 256 KiB, and the Node
// contains this annotation twice, because the record of the Node's last write includes it.
const maxBytes = 32 << 10

// The states of a plugin.
const (
	LoadedState = "Loaded"
	FailedState = "Failed"
)

// Plugin describes a plugin in the folder of a virtual kubelet.
type Plugin struct {
	Name string `json:"name"`
	// State is LoadedState or FailedState.
	State string `json:"state"`
	// IsRunning is true if the plugin is part of chains. If State is FailedState nevertheless, an earlier version of
	// the plugin is running.
	IsRunning bool `json:"running"`
	// Version, Kinds, Hooks, Priority and Replaces describe the running version. Kinds lists the kinds whose chains
	// contain the plugin.
	Version  string   `json:"version,omitempty"`
	Kinds    []string `json:"kinds,omitempty"`
	Hooks    []string `json:"hooks,omitempty"`
	Priority int32    `json:"priority,omitempty"`
	Replaces string   `json:"replaces,omitempty"`
	// Held lists the kinds whose objects are held because the plugin cannot run. Held objects are neither written nor
	// deleted.
	Held []string `json:"held,omitempty"`
}

// List is the value of the annotation.
type List struct {
	Plugins []Plugin `json:"plugins"`
	// Omitted is the number of plugins that do not fit into the annotation.
	Omitted int `json:"omitted,omitempty"`
}

// Encode returns the value of the annotation. It is empty if there are no plugins.
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

// Decode returns the plugins in the annotations of a Node.
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

// ConditionType is the type of the condition of a virtual Node that reports whether the plugins in the folder of its
// virtual kubelet are loaded. A Node without such plugins does not have the condition.
const ConditionType corev1.NodeConditionType = "FolderPluginsLoaded"

// Reasons of the condition FolderPluginsLoaded.
const (
	LoadedReason = "PluginsLoaded"
	// FailedReason means that a plugin cannot be loaded. An earlier version of it may run instead.
	FailedReason = "PluginsFailed"
	// HeldReason means that objects are held because neither the plugin nor an earlier version of it can run.
	HeldReason = "ObjectsHeld"
)

// maxNamed is the maximum number of plugins that the condition names.
const maxNamed = 5

// NewCondition returns the condition for these plugins, without timestamps. It returns nil if there are no plugins.
func NewCondition(found []Plugin) *corev1.NodeCondition {
	if len(found) == 0 {
		return nil
	}
	var held, kinds, earlier, without []string
	for i := range found {
		switch p := &found[i]; {
		case p.State != FailedState:
		case len(p.Held) > 0:
			held, kinds = append(held, p.Name), append(kinds, p.Held...)
		case p.IsRunning:
			earlier = append(earlier, p.Name)
		default:
			without = append(without, p.Name)
		}
	}
	condition := &corev1.NodeCondition{Type: ConditionType, Status: corev1.ConditionFalse, Reason: FailedReason}
	var text []string
	if len(held) > 0 {
		slices.Sort(kinds)
		condition.Reason = HeldReason
		text = append(text, "Plugins that cannot run: "+joinNames(held)+". Objects of these kinds are neither written nor deleted until they can: "+strings.Join(slices.Compact(kinds), ", ")+".")
	}
	if len(earlier) > 0 {
		text = append(text, "Plugins that do not load, of which an earlier version runs: "+joinNames(earlier)+".")
	}
	if len(without) > 0 {
		text = append(text, "Plugins that do not load, without which objects are reflected: "+joinNames(without)+".")
	}
	if len(text) == 0 {
		condition.Status, condition.Reason = corev1.ConditionTrue, LoadedReason
		condition.Message = printable.Message(fmt.Sprintf("All plugins of the folder (%d) are loaded", len(found)))
		return condition
	}
	condition.Message = printable.Message(strings.Join(text, " ") + " See the Event PluginFailed of the VirtualNode or the log of the virtual kubelet for the errors, and repair or remove the files")
	return condition
}

// joinNames returns a list of at most maxNamed names, and the number of the remaining ones.
func joinNames(names []string) string {
	if extra := len(names) - maxNamed; extra > 0 {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", extra)
	}
	return strings.Join(names, ", ")
}
