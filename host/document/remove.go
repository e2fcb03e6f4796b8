// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"

	"github.com/refract-project/refract/host/document/fieldpath"
)

const maxPathsBytes = 1 << 16

// pathWork is the work for each of many short paths, in units of TakeWork.
const pathWork = 16

// Remove removes the values at the paths, which are separated by newlines, and returns the number of removed values.
// In these paths `*` matches every element or value, for example in `spec.ports.*.nodePort`. A path that has no
// value, or leads through a scalar, is ignored.
func (n Node) Remove(paths string) (int, error) {
	if n.ReadOnly() {
		return 0, readOnly(paths)
	}
	if len(paths) > maxPathsBytes {
		return 0, newError(BadPath, paths, "more than 64 KiB of paths")
	}
	if n.id == 0 {
		return 0, checkPaths(paths)
	}
	total, start := 0, int32(0)
	// The variable is declared here, because a declaration in the for clause would be copied for each iteration.
	l := n.d.paths.Lines(paths)
	for l.More {
		r, err := n.d.nextRoute(&l)
		if err == nil && len(r.Hops) == 0 {
			err = noPath()
		}
		if err != nil {
			return total, err
		}
		count, err := n.d.removePath(n.id, r, &start)
		n.d.work += pathWork
		total += count
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func noPath() error { return newError(BadPath, "", "empty; a value is removed from its parent") }

// checkPaths checks the syntax of paths when they cannot be resolved, because the node is absent.
func checkPaths(paths string) error {
	for path := range strings.SplitSeq(paths, "\n") {
		if path == "" {
			return noPath()
		}
		if err := checkPath(path); err != nil {
			return err
		}
	}
	return nil
}

// RemoveElem removes one element of the list n. Later elements move one position toward the front.
func (n Node) RemoveElem(i int) error {
	if err := n.checkWritable(""); err != nil {
		return err
	}
	if k := n.Kind(); k != List {
		return wrongKind("", k, "a list")
	}
	if uint(i) >= uint(n.d.sizeOf(n.id)) {
		return newError(BadIndex, "", "past the end of the list")
	}
	n.d.removeElem(n.id, i)
	return nil
}

// removePath removes the values at a route. start is the node of the first hop, if it is known from the previous
// route: many routes begin with the same segments as the previous route, and lead to no value.
func (d *Document) removePath(id int32, r *fieldpath.Route, start *int32) (int, error) {
	if !r.Again {
		*start = 0
	} else if *start == 0 {
		*start = d.visitedChild(id, r.Hops[0].Text)
	}
	if *start != 0 {
		return d.removeValues(*start, r, 1)
	}
	m := d.topOf(id, r)
	if m == nil {
		return d.removeValues(id, r, 0)
	}
	if !d.hasValue(m.fields, r, 1) {
		return 0, nil
	}
	key := r.Hops[0].Name
	if c := d.visitedChild(id, key.Text); c != 0 {
		return d.removeValues(c, r, 1)
	}
	return d.removeBelow(id, key, m.fields, r, 1)
}

// removeValues removes the values that the hops lead to, beginning with hop number at.
func (d *Document) removeValues(id int32, r *fieldpath.Route, at int) (int, error) {
	h := &r.Hops[at]
	switch d.nodes[id].kind {
	case Map:
		switch {
		case h.Wild:
			return d.removeFields(id, r, at+1)
		case r.IsLast(at):
			return d.removeEntry(id, h.Name)
		}
		return d.removeField(id, h.Name, r, at+1)
	case List:
		return d.removeFromList(id, r, at)
	}
	return 0, nil
}

// removeEntry removes one entry of a map.
func (d *Document) removeEntry(id int32, key fieldpath.Name) (int, error) {
	if c := d.visitedChild(id, key.Text); c != 0 {
		return d.eraseEntry(id, c), nil
	}
	if _, ok := d.nodes[id].baseFields()[key.Text]; !ok {
		return 0, nil
	}
	return d.removeUnvisited(id, key)
}

// removeField removes the values below one entry that the hops lead to, beginning with hop number at, or the entry
// itself if no hops are left. It visits only nodes that lead to a removed value.
func (d *Document) removeField(id int32, key fieldpath.Name, r *fieldpath.Route, at int) (int, error) {
	if at == len(r.Hops) {
		return d.removeEntry(id, key)
	}
	if c := d.visitedChild(id, key.Text); c != 0 {
		return d.removeValues(c, r, at)
	}
	raw, ok := d.nodes[id].baseFields()[key.Text]
	if !ok {
		return 0, nil
	}
	if at == 1 {
		d.rememberTop(id, key, raw)
	}
	if !d.hasValue(raw, r, at) {
		return 0, nil
	}
	return d.removeBelow(id, key, raw, r, at)
}

// removeBelow visits an entry of the base, and removes the values that the hops lead to, beginning with hop number at.
// Such values must exist.
func (d *Document) removeBelow(id int32, key fieldpath.Name, raw any, r *fieldpath.Route, at int) (int, error) {
	c, err := d.linkChild(id, key, raw, true)
	if err != nil {
		return 0, err
	}
	if h := &r.Hops[at]; r.IsLast(at) && !h.Wild && d.nodes[c].kind == Map {
		return d.removeUnvisited(c, h.Name)
	}
	return d.removeValues(c, r, at)
}

// removeUnvisited removes an entry of the base that was not visited before. This is the most frequent kind of
// removal.
func (d *Document) removeUnvisited(id int32, key fieldpath.Name) (int, error) {
	c, err := d.linkChild(id, key, nil, false)
	if err != nil {
		return 0, err
	}
	n := &d.nodes[c]
	n.state = removed
	n.flags |= fInBase | fDirty
	d.markDirty(id)
	d.nodes[id].delta--
	return 1, nil
}

// eraseEntry makes an entry of a map absent, and returns the number of removed entries.
func (d *Document) eraseEntry(id, c int32) int {
	if d.nodes[c].kind == Absent {
		return 0
	}
	d.markDirty(c)
	d.killNode(c)
	d.nodes[id].delta--
	return 1
}

func (d *Document) removeFields(id int32, r *fieldpath.Route, at int) (total int, err error) {
	start := len(d.keys)
	d.keys = d.appendKeys(d.keys, id)
	end := len(d.keys)
	for i := start; i < end && err == nil; i++ {
		if err = d.addWork(workEntry); err != nil {
			break
		}
		var n int
		n, err = d.removeField(id, fieldpath.Name{Text: d.keys[i]}, r, at)
		total += n
	}
	clear(d.keys[start:])
	d.keys = d.keys[:start]
	return total, err
}

func (d *Document) removeFromList(id int32, r *fieldpath.Route, at int) (total int, err error) {
	if !r.Hops[at].Wild {
		return d.removeAtElem(id, int(r.Hops[at].Index), r, at+1)
	}
	if r.IsLast(at) {
		total = d.sizeOf(id)
		if total > 0 {
			err = d.writeNode(id, content{kind: List})
		}
		return total, err
	}
	for i := 0; i < d.sizeOf(id) && err == nil; i++ {
		if err = d.addWork(workEntry); err != nil {
			break
		}
		var n int
		n, err = d.removeAtElem(id, i, r, at+1)
		total += n
	}
	return total, err
}

// removeAtElem removes the values below one element that the hops lead to, beginning with hop number at, or the element
// itself if no hops are left.
func (d *Document) removeAtElem(id int32, i int, r *fieldpath.Route, at int) (int, error) {
	v := d.elementAt(id, i)
	if v.kind == Absent {
		return 0, nil
	}
	if at == len(r.Hops) {
		d.removeElem(id, i)
		return 1, nil
	}
	c := v.id
	if c == 0 {
		if !d.hasValue(v.raw, r, at) {
			return 0, nil
		}
		var err error
		if c, err = d.visitElem(id, i); err != nil {
			return 0, err
		}
	}
	return d.removeValues(c, r, at)
}

// removeElem removes the element from the slots of its list.
func (d *Document) removeElem(id int32, i int) {
	d.markDirty(id)
	d.logRewrite(id)
	l := d.listSlots(id)
	if l[i] < 0 {
		d.killNode(^l[i])
	}
	d.work += int64(len(l)-i) / 16
	n := &d.nodes[id]
	d.lists[n.list-1] = append(l[:i], l[i+1:]...)
	n.flags |= fReshaped
}

// hasValue reports whether the hops, beginning with hop number at, lead to a value below a plain value.
func (d *Document) hasValue(raw any, r *fieldpath.Route, at int) bool {
	for ; at < len(r.Hops); at++ {
		h := &r.Hops[at]
		d.work += workHop
		switch c := raw.(type) {
		case map[string]any:
			if h.Wild {
				// Wildcards are rare, so the entries are not searched here. The removal finds out whether one of them
				// has the value.
				return len(c) > 0
			}
			e, ok := c[h.Text]
			if !ok {
				return false
			}
			raw = e
		case []any:
			if h.Wild {
				return d.hasElem(c, r, at+1)
			}
			if uint(h.Index) >= uint(len(c)) {
				return false
			}
			raw = c[h.Index]
		default:
			return false
		}
	}
	return true
}

// hasElem does the same as hasValue for the elements of a list. If the work exceeds the limit, it returns true, so
// that the removal reports the error.
func (d *Document) hasElem(l []any, r *fieldpath.Route, at int) bool {
	for _, e := range l {
		if d.addWork(workEntry) != nil || d.hasValue(e, r, at) {
			return true
		}
	}
	return false
}
