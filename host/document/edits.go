// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "github.com/refract-project/refract/host/document/fieldpath"

// Edit is one difference between the object and its base.
type Edit struct {
	Path    fieldpath.Path // valid only during the callback
	Value   View           // absent if the value was removed
	Removed bool
}

// Edits calls yield for each difference between the object and its base, until yield returns false. Edits compares
// values, so a write that was undone later is not an edit. Maps are compared entry by entry, and lists of equal
// length element by element. A list whose length has changed is a single edit. A new empty map is an edit. For a new
// map with entries, each entry is an edit instead. Only written nodes are visited, in no particular order.
func (d *Document) Edits(yield func(Edit) bool) {
	d.path = d.path[:0]
	if d.undo.mark != 0 {
		d.diffLogged(ObjectRoot, yield)
		return
	}
	d.diffKept(ObjectRoot, yield)
}

// EditsWithin reports whether every write is at or below an entry of the object for whose key inside returns true.
func (d *Document) EditsWithin(inside func(key string) bool) bool {
	for c := d.nodes[ObjectRoot].first; c != 0; {
		m := &d.nodes[c]
		if d.isEdited(c) && !inside(m.key) {
			return false
		}
		c = m.next
	}
	return true
}

// The diff functions report the differences at d.path and below. They return false if yield has returned false.

func (d *Document) pushSegment(s fieldpath.Segment) { d.path = append(d.path, s) }
func (d *Document) popSegment()                     { d.path = d.path[:len(d.path)-1] }

func keySegment(k string) fieldpath.Segment { return fieldpath.Segment{Key: k, Index: -1} }

// diffLogged compares a node with its logged state at the last Commit. Entries and elements that were not written
// since then are equal.
func (d *Document) diffLogged(id int32, yield func(Edit) bool) bool {
	n := &d.nodes[id]
	if n.flags&fEdited == 0 {
		return true
	}
	if d.undo.log[n.log-1].rewritten {
		return d.diffPast(d.viewOf(id), d.pastView(id), yield)
	}
	fields := n.baseFields()
	for c := n.first; c != 0; c = d.nodes[c].next {
		k := d.nodes[c].key
		before, ok := fields[k]
		if !d.diffEither(keySegment(k), c, before, ok, yield) {
			return false
		}
	}
	if n.list == 0 {
		return true
	}
	elems := n.baseElems()
	for i, s := range d.lists[n.list-1] {
		if s >= 0 {
			continue
		}
		var before any
		if ^s >= d.undo.mark {
			before = elems[d.positionBefore(id, i)]
		}
		if !d.diffEither(fieldpath.Segment{Index: i}, ^s, before, true, yield) {
			return false
		}
	}
	return true
}

// positionBefore returns the position in the base of a list element that was not visited at the last Commit. The
// positions of the list must not have changed since then.
func (d *Document) positionBefore(id int32, i int) int {
	if d.past(id).list == 0 {
		return i
	}
	return int(d.pastSlots(id)[i])
}

// diffEither compares an entry or element of a logged node with its logged value. If it was visited only after the
// last Commit, it is compared with the base.
func (d *Document) diffEither(s fieldpath.Segment, id int32, before any, inBase bool, yield func(Edit) bool) (more bool) {
	if id >= d.undo.mark {
		return d.diffChild(s, id, before, inBase, yield)
	}
	d.pushSegment(s)
	more = d.diffLogged(id, yield)
	d.popSegment()
	return more
}

// diffPast compares the current value with an earlier value, which may be absent.
func (d *Document) diffPast(now, before View, yield func(Edit) bool) bool {
	if before.kind == Absent {
		return d.diffAdded(now, yield)
	}
	return d.diffViews(now, before, yield)
}

// diffKept reports the differences in a node that still has its base. Values that were not written are equal and are
// not compared.
func (d *Document) diffKept(id int32, yield func(Edit) bool) bool {
	n := &d.nodes[id]
	if n.flags&fReshaped != 0 {
		return d.diffViews(d.viewOf(id), rawView(n.base), yield)
	}
	fields := n.baseFields()
	for c := n.first; c != 0; c = d.nodes[c].next {
		k := d.nodes[c].key
		before, ok := fields[k]
		if !d.diffChild(keySegment(k), c, before, ok, yield) {
			return false
		}
	}
	if n.list == 0 {
		return true
	}
	elems := n.baseElems()
	for i, s := range d.lists[n.list-1] {
		if s < 0 && !d.diffChild(fieldpath.Segment{Index: i}, ^s, elems[i], true, yield) {
			return false
		}
	}
	return true
}

// diffChild compares an entry or element of a node that still has its base.
func (d *Document) diffChild(s fieldpath.Segment, id int32, before any, inBase bool, yield func(Edit) bool) (more bool) {
	n := &d.nodes[id]
	if n.flags&fDirty == 0 {
		return true
	}
	d.pushSegment(s)
	switch {
	case n.state == view:
		more = d.diffKept(id, yield)
	case inBase:
		more = d.diffViews(d.viewOf(id), rawView(before), yield)
	default:
		more = d.diffAdded(d.viewOf(id), yield)
	}
	d.popSegment()
	return more
}

// diffViews compares two arbitrary values.
func (d *Document) diffViews(now, before View, yield func(Edit) bool) bool {
	switch {
	case now.kind == Map && before.kind == Map:
		return d.diffMaps(now, before, yield)
	case now.kind == List && before.kind == List && now.Len() == before.Len():
		return d.diffLists(now, before, yield)
	case equalViews(now, before):
		return true
	}
	return yield(Edit{Path: d.path, Value: now, Removed: now.kind == Absent})
}

func (d *Document) diffLists(now, before View, yield func(Edit) bool) bool {
	for i := range now.Len() {
		d.pushSegment(fieldpath.Segment{Index: i})
		more := d.diffViews(now.Index(i), before.Index(i), yield)
		if d.popSegment(); !more {
			return false
		}
	}
	return true
}

func (d *Document) diffMaps(now, before View, yield func(Edit) bool) bool {
	for _, k := range before.Keys(nil) {
		d.pushSegment(keySegment(k))
		more := d.diffViews(now.Field(k), before.Field(k), yield)
		if d.popSegment(); !more {
			return false
		}
	}
	for _, k := range now.Keys(nil) {
		if before.Field(k).kind != Absent {
			continue
		}
		d.pushSegment(keySegment(k))
		more := d.diffAdded(now.Field(k), yield)
		if d.popSegment(); !more {
			return false
		}
	}
	return true
}

// diffAdded reports a value that does not exist in the base.
func (d *Document) diffAdded(now View, yield func(Edit) bool) bool {
	switch {
	case now.kind == Absent:
		return true
	case now.kind != Map || now.Len() == 0:
		return yield(Edit{Path: d.path, Value: now})
	}
	for _, k := range now.Keys(nil) {
		d.pushSegment(keySegment(k))
		more := d.diffAdded(now.Field(k), yield)
		if d.popSegment(); !more {
			return false
		}
	}
	return true
}
