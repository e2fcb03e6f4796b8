// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import "github.com/refract-project/refract/host/document"

// Selector selects the objects on which a plugin of a chain runs. It is called once for each run, before the first
// plugin, so that plugins cannot change which objects are selected. It may be called concurrently. It must not block
// or modify env.
type Selector interface {
	// Selects reports whether the plugin runs. An error ends the run before the first plugin, for example because the
	// labels of the namespace are not known yet.
	Selects(env *Env) (bool, error)
}

// NoneOf returns a selector for the objects that none of the given selectors selects. For equal selectors it returns
// equal results. Without selectors it returns nil, which selects all objects.
func NoneOf(selectors ...Selector) Selector {
	var all Selector
	for _, s := range selectors {
		all = exclusion{s, all}
	}
	return all
}

// exclusion selects an object if except does not select it, and rest is nil or selects it.
type exclusion struct{ except, rest Selector }

// Selects implements Selector.
func (e exclusion) Selects(env *Env) (bool, error) {
	selected, err := e.except.Selects(env)
	if err != nil || selected {
		return false, err
	}
	if e.rest == nil {
		return true, nil
	}
	return e.rest.Selects(env)
}

// Labels are the labels of an object. They implement labels.Labels of k8s.io/apimachinery.
type Labels struct{ fields map[string]any }

// Lookup returns the value of a label, and whether the label exists.
func (l Labels) Lookup(label string) (value string, exists bool) {
	value, exists = l.fields[label].(string)
	return value, exists
}

// Get returns the value of a label, or "" if it does not exist.
func (l Labels) Get(label string) string {
	value, _ := l.Lookup(label)
	return value
}

// Has reports whether a label exists.
func (l Labels) Has(label string) bool {
	_, exists := l.Lookup(label)
	return exists
}

// ObjectLabels returns the labels of the consumer's object (see Env.Object). Only selectors may call it.
func (e *Env) ObjectLabels() Labels {
	metadata, _ := e.subject["metadata"].(map[string]any)
	fields, _ := metadata["labels"].(map[string]any)
	return Labels{fields}
}

// Entry is a plugin of a chain with the selector of its objects. If Selector is nil, the plugin runs on all objects.
// If Held is set, the entry has no plugin: for the selected objects, Chain.Run returns Held without running any
// plugin of the chain.
type Entry struct {
	Plugin   *Plugin
	Selector Selector
	Held     *HeldError
}

// selectPlugins sets env.selected to the bits of the plugins that the selectors allow to run on the object.
func (c *Chain) selectPlugins(doc *document.Document, env *Env) error {
	if env.subject = env.Object; env.subject == nil {
		env.subject, _ = doc.Base().Value().(map[string]any)
	}
	env.selected = 0
	n := 0
	for i := range c.entries {
		e := &c.entries[i]
		selected, err := e.Selector == nil, error(nil)
		if !selected {
			selected, err = e.Selector.Selects(env)
		}
		switch {
		case err != nil:
			return &SelectorError{Plugin: e.name(), Err: err}
		case e.Held != nil && selected:
			return e.Held
		case e.Held != nil:
			continue
		case selected:
			env.selected |= 1 << n
		}
		n++
	}
	return nil
}

func (e *Entry) name() string {
	if e.Held != nil {
		return e.Held.Plugin
	}
	return e.Plugin.Name()
}

// LeftOut returns the plugins of the chain that did not run because of their selectors.
func (o *Outcome) LeftOut() (plugins []*Plugin) {
	if o.chain == nil {
		return nil
	}
	for n, p := range o.chain.plugins {
		if o.selected&(1<<n) == 0 {
			plugins = append(plugins, p)
		}
	}
	return plugins
}
