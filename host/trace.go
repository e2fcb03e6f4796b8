// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"iter"
	"strings"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/document/fieldpath"
)

// Edit is one edit of a plugin. It is valid during the call of Env.Trace. Path.String and View.Value return copies.
type Edit struct {
	Path fieldpath.Path
	// Before and After are the values before and after the plugin ran. Before is absent if the edit added the value,
	// and After is absent if the edit removed the value.
	Before, After document.View
}

// traceEdits calls Env.Trace after a plugin has ended.
func (e *Env) traceEdits(p *Plugin, doc *document.Document) {
	e.Trace(p, func(yield func(Edit) bool) {
		base := doc.Base()
		doc.Edits(func(edit document.Edit) bool {
			return yield(Edit{Path: edit.Path, Before: base.At(edit.Path), After: edit.Value})
		})
	})
}

// Conflict is an edit that a later plugin of the chain has overwritten, at the same path or at a path above or below
// it.
type Conflict struct {
	Path        string // path of the later edit
	First, Then string // names of the two plugins
}

// Conflicts finds the conflicts between the plugins of a chain in one run. The method Trace must be set as Env.Trace,
// and Reset must be called before each run.
type Conflicts struct {
	traced []tracedEdit
	found  []Conflict
}

// tracedEdit is an edit that later edits may overwrite.
type tracedEdit struct{ path, plugin string }

// Reset removes the edits of earlier runs.
func (c *Conflicts) Reset() { c.traced, c.found = c.traced[:0], nil }

// Found returns the conflicts in the order of the edits. If an edit of a plugin overwrites several edits of another
// plugin, this is one conflict.
func (c *Conflicts) Found() []Conflict { return c.found }

// Trace records the edits of a plugin; see Env.Trace.
func (c *Conflicts) Trace(p *Plugin, edits iter.Seq[Edit]) {
	earlier := len(c.traced)
	for edit := range edits {
		path := edit.Path.String()
		for n, one := range c.traced[:earlier] {
			if one.overlaps(path) && !c.overlapsBefore(n, path) {
				c.found = append(c.found, Conflict{Path: path, First: one.plugin, Then: p.Name()})
			}
		}
		c.traced = append(c.traced, tracedEdit{path, p.Name()})
	}
}

// overlapsBefore reports whether the plugin of the n-th edit has made an earlier edit that also overlaps the path, so
// that the conflict was already found.
func (c *Conflicts) overlapsBefore(n int, path string) bool {
	for _, one := range c.traced[:n] {
		if one.plugin == c.traced[n].plugin && one.overlaps(path) {
			return true
		}
	}
	return false
}

// overlaps reports whether the path of the edit is at or below path, or path is at or below the path of the edit.
func (e tracedEdit) overlaps(path string) bool { return isBelow(e.path, path) || isBelow(path, e.path) }

// isBelow reports whether path is equal to the path in the argument above, or below it. Each segment of a path except
// for the first one begins with a dot or a bracket.
func isBelow(path, above string) bool {
	rest, ok := strings.CutPrefix(path, above)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
