// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strconv"
	"strings"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/document/fieldpath"
)

// checkDocument checks the edits of the n-th plugin, which are all differences between the document and its base.
func (g *guard) checkDocument(doc *document.Document, n int) error {
	if !doc.Edited() {
		return nil
	}
	if err := g.checkEdits(doc, n); err != nil {
		return err
	}
	for _, path := range g.off {
		if err := g.leftOff(doc, n, path); err != nil {
			return err
		}
	}
	return nil
}

func (g *guard) checkEdits(doc *document.Document, n int) error {
	bit := uint64(1) << n
	if doc.EditsWithin(func(key string) bool { return g.root.isFree(key, bit) }) {
		return nil
	}
	var found error
	doc.Edits(func(e document.Edit) bool {
		if problem := g.editProblem(doc, &e, bit); problem != "" {
			found = g.guardError(n, e.Path, problem)
		}
		return found == nil
	})
	return found
}

// isFree reports whether the plugin may write an entry of the object and everything below it. If it returns true, as
// for most edits, no further check is needed.
func (r *rule) isFree(key string, bit uint64) bool {
	for _, c := range r.children {
		if c.key == key {
			return c.free&bit != 0
		}
	}
	return false
}

// verdict collects the results of the rules along a path.
type verdict struct {
	manifest, narrowed, chain bool
	broken                    *rule
}

// editProblem returns the reason why an edit is forbidden, or "" if it is allowed.
func (g *guard) editProblem(doc *document.Document, e *document.Edit, bit uint64) string {
	if len(e.Path) > 0 && g.root.isFree(e.Path[0].Key, bit) {
		return ""
	}
	var v verdict
	g.root.judgeEdit(doc, e, e.Path, bit, &v)
	switch {
	case v.broken != nil && v.broken.immutable:
		return "the field is managed by Refract"
	case v.broken != nil:
		return "the field may be removed but not set"
	case !v.manifest:
		return "the path is not covered by `writes` in the manifest"
	case !v.narrowed:
		return "the path is not covered by `writes` in the plugin's configuration"
	case !v.chain:
		return "the path may not be written by this chain"
	}
	return ""
}

// judgeEdit applies the rules along the path of an edit. At the end of the path, it also applies all rules for deeper
// paths, because the whole value was replaced.
func (r *rule) judgeEdit(doc *document.Document, e *document.Edit, rest fieldpath.Path, bit uint64, v *verdict) {
	v.manifest = v.manifest || r.manifests&bit != 0
	v.narrowed = v.narrowed || r.narrowed&bit != 0
	v.chain = v.chain || r.chain
	if r.immutable || r.unforgeable && !(e.Removed && len(rest) == 0) {
		v.broken = r
	}
	if len(rest) == 0 {
		for _, c := range r.children {
			c.judgeBelow(doc, e, v)
		}
		return
	}
	for _, c := range r.children {
		if c.matchesSegment(rest[0]) {
			c.judgeEdit(doc, e, rest[1:], bit, v)
		}
	}
}

// judgeBelow applies the rules below a replaced value. A permission to write a deeper path is not sufficient, because
// more than this path was written.
func (r *rule) judgeBelow(doc *document.Document, e *document.Edit, v *verdict) {
	if r.immutable || r.unforgeable && !e.Removed {
		before, now := valuesAt(doc.Base(), r.path), valuesAt(doc.Root().View(), r.path)
		if r.immutable && !slices.EqualFunc(before, now, sameValue) || r.unforgeable && len(now) > 0 && !slices.EqualFunc(before, now, sameValue) {
			v.broken = r
		}
	}
	for _, c := range r.children {
		c.judgeBelow(doc, e, v)
	}
}

func (r *rule) matchesSegment(s fieldpath.Segment) bool {
	switch {
	case r.any:
		return true
	case s.Index >= 0:
		n, err := strconv.Atoi(r.key)
		return err == nil && n == s.Index
	case r.prefix != "":
		return strings.HasPrefix(s.Key, r.prefix)
	}
	return r.key == s.Key
}

// located is a value together with its path.
type located struct {
	path  fieldpath.Path
	value document.View
}

func sameValue(a, b located) bool {
	return slices.Equal(a.path, b.path) && a.value.Equal(b.value)
}

// valuesAt returns all values that match a path with wildcards, in the order of their keys.
func valuesAt(root document.View, path fieldpath.Path) []located {
	found := []located{{value: root}}
	for _, s := range path {
		var next []located
		for _, l := range found {
			next = l.appendMatches(s.Key, next)
		}
		found = next
	}
	return found
}

// appendMatches appends the entries or elements of a value that match a segment of a rule.
func (l located) appendMatches(key string, out []located) []located {
	prefix, prefixed := strings.CutSuffix(key, "/*")
	one := func(s fieldpath.Segment, v document.View) {
		if v.Kind() != document.Absent {
			out = append(out, located{append(slices.Clone(l.path), s), v})
		}
	}
	switch l.value.Kind() {
	case document.Map:
		if key != "*" && !prefixed {
			one(fieldpath.Segment{Key: key, Index: -1}, l.value.Field(key))
			break
		}
		for _, k := range l.value.Keys(nil) {
			if key == "*" || strings.HasPrefix(k, prefix+"/") {
				one(fieldpath.Segment{Key: k, Index: -1}, l.value.Field(k))
			}
		}
	case document.List:
		from, to := 0, l.value.Len()
		if key != "*" {
			n, err := strconv.Atoi(key)
			if err != nil || n < 0 || n >= to {
				break
			}
			from, to = n, n+1
		}
		for i := from; i < to; i++ {
			one(fieldpath.Segment{Index: i}, l.value.Index(i))
		}
	}
	return out
}

func isOn(v document.View) bool {
	on, ok := v.Bool()
	return v.Exists() && (on || !ok)
}

// leftOff returns an error if the n-th plugin has set a boolean that is listed in guard.off.
func (g *guard) leftOff(doc *document.Document, n int, path fieldpath.Path) error {
	var before []located
	for i, now := range g.turnedOn(doc.Root().View(), path) {
		if i == 0 {
			before = valuesAt(doc.Base(), path)
		}
		if !slices.ContainsFunc(before, func(b located) bool { return sameValue(b, now) }) {
			return g.guardError(n, now.path, "it must be off")
		}
	}
	return nil
}

// turnedOn returns the values at a path of guard.off that are set. If there are none, which is usual, it allocates no
// memory.
func (g *guard) turnedOn(root document.View, path fieldpath.Path) []located {
	at := root
	for _, s := range path {
		if s.Key == "*" {
			return slices.DeleteFunc(valuesAt(root, path), func(l located) bool { return !isOn(l.value) })
		}
		at = at.Field(s.Key)
	}
	if !isOn(at) {
		return nil
	}
	return []located{{path, at}}
}

// turnOff removes the booleans of guard.off that were already set before the first plugin ran, and adds a warning for
// each.
func (g *guard) turnOff(doc *document.Document, out *Outcome) error {
	for _, path := range g.off {
		for _, on := range g.turnedOn(doc.Root().View(), path) {
			if g.keepsValue(doc.Base(), on.path) {
				continue
			}
			if _, err := doc.Root().Remove(on.path.String()); err != nil {
				return g.guardError(-1, on.path, "it must be off and cannot be removed, "+err.Error())
			}
			out.addWarning("", on.path.String()+" is off on the provider: pods of reflected objects do not use the namespaces of their host")
		}
	}
	return nil
}

// keepsValue reports whether the value at a path of guard.off stays: see Guard.KeptBy.
func (g *guard) keepsValue(base document.View, path fieldpath.Path) bool {
	if !slices.Contains(g.kept, path.String()) {
		return false
	}
	by := base
	for _, s := range g.keptBy {
		by = by.Field(s.Key)
	}
	text, ok := by.Text()
	return ok && text == g.keptValue
}

// guardError returns a GuardError about the n-th plugin, or about no plugin if n is -1.
func (g *guard) guardError(n int, path fieldpath.Path, rule string) error {
	name := ""
	if n >= 0 {
		name = g.plugins[n].Name()
	}
	return &GuardError{Plugin: name, Hook: g.hook, Path: path.String(), Rule: rule}
}
