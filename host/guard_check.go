// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strconv"
	"strings"

	"github.com/refract-project/refract/host/document"
)

// check looks at what was written, and at nothing else but the booleans that must be off.
func (g *guard) check(doc *document.Document) error {
	if doc.Edited() {
		if err := g.checkEdits(doc); err != nil {
			return err
		}
	}
	for _, path := range g.off {
		if err := g.turnOff(doc, path); err != nil {
			return err
		}
	}
	return nil
}

func (g *guard) checkEdits(doc *document.Document) error {
	if doc.EditsWithin(g.freeForAll) {
		return nil
	}
	var found error
	doc.Edits(func(e document.Edit) bool {
		found = g.checkEdit(doc, &e)
		return found == nil
	})
	return found
}

// freeForAll tells that every plugin may write the object's entry and all below: of most edits that is all there is to ask.
func (g *guard) freeForAll(key string) bool { return g.root.isFree(key, g.all) }

func (r *rule) isFree(key string, plugins uint64) bool {
	for _, c := range r.children {
		if c.key == key {
			return plugins != 0 && c.free&plugins == plugins
		}
	}
	return false
}

// verdict gathers what the rules on the way say.
type verdict struct {
	manifest, narrowed, chain bool
	broken                    *rule
}

func (g *guard) checkEdit(doc *document.Document, e *document.Edit) error {
	var bit uint64
	if e.Author > 0 {
		bit = 1 << (e.Author - 1)
	}
	if len(e.Path) > 0 && g.root.isFree(e.Path[0].Key, bit) {
		return nil
	}
	var v verdict
	g.walk(doc, g.root, e.Path, bit, &v)
	switch {
	case v.broken != nil && v.broken.immutable:
		return g.error(e, "the field is the engine's")
	case v.broken != nil:
		return g.error(e, "the field may be removed but not set")
	case e.Author == 0:
		return nil
	case !v.manifest:
		return g.error(e, "it is below none of the paths that the plugin's manifest says it writes")
	case !v.narrowed:
		return g.error(e, "it is below none of the paths that the plugin's configuration allows")
	case !v.chain:
		return g.error(e, "it is below none of the paths that may be written here")
	}
	return nil
}

// walk goes down the rules that the path meets, and at its end to all below: a map that was replaced as a whole.
func (g *guard) walk(doc *document.Document, r *rule, rest document.Path, bit uint64, v *verdict) {
	v.manifest = v.manifest || r.manifests&bit != 0
	v.narrowed = v.narrowed || r.narrowed&bit != 0
	v.chain = v.chain || r.chain
	if (r.immutable || r.unforgeable) && r.brokenIn(doc) {
		v.broken = r
	}
	if len(rest) == 0 {
		for _, c := range r.children {
			c.below(doc, v)
		}
		return
	}
	for _, c := range r.children {
		if c.any || c.matches(rest[0]) {
			g.walk(doc, c, rest[1:], bit, v)
		}
	}
}

// below checks the rules under a value that was replaced. What they allow does not count: more was written.
func (r *rule) below(doc *document.Document, v *verdict) {
	if (r.immutable || r.unforgeable) && r.brokenIn(doc) {
		v.broken = r
	}
	for _, c := range r.children {
		c.below(doc, v)
	}
}

func (r *rule) matches(s document.Segment) bool {
	if s.Index < 0 {
		return r.key == s.Key
	}
	n, err := strconv.Atoi(r.key)
	return err == nil && n == s.Index
}

// brokenIn compares the value with that of the base. It is called for edits that touch it only, which are rare. A path with
// a wildcard is broken by any edit.
func (r *rule) brokenIn(doc *document.Document) bool {
	now, err := doc.Root().At(r.path)
	if err != nil {
		return true
	}
	before, err := doc.Base().At(r.path)
	if err != nil {
		return true
	}
	if now.Kind() == document.Absent {
		return r.immutable && before.Kind() != document.Absent
	}
	return !now.Equal(before)
}

func (g *guard) turnOff(doc *document.Document, path string) error {
	v, err := doc.Root().At(path)
	if err != nil || !v.Exists() {
		return nil
	}
	if on, ok := v.Bool(); ok && !on {
		return nil
	}
	if before, err := doc.Base().At(path); err != nil || !before.Equal(v) {
		return g.blame(doc, path)
	}
	doc.SetAuthor(0)
	_, err = doc.Root().Remove(path)
	return err
}

// blame names the plugin that turned on what must be off.
func (g *guard) blame(doc *document.Document, path string) error {
	err := &GuardError{Hook: g.hook, Path: path, Rule: "it must be off"}
	doc.Edits(func(e document.Edit) bool {
		if at := e.Path.String(); at == path || strings.HasPrefix(path, at+".") {
			err.Plugin = g.author(&e)
		}
		return true
	})
	return err
}

func (g *guard) author(e *document.Edit) string {
	if e.Author == 0 || int(e.Author) > len(g.plugins) {
		return ""
	}
	return g.plugins[e.Author-1].name
}

func (g *guard) error(e *document.Edit, rule string) error {
	return &GuardError{Plugin: g.author(e), Hook: g.hook, Path: e.Path.String(), Rule: rule}
}
