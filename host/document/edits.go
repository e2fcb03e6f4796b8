// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// Edit is one difference between the object and its base.
type Edit struct {
	Path    Path // valid during the callback only
	Value   View // absent if removed
	Removed bool
}

// Edits calls yield for each difference between the object and its base, until yield returns false. It compares values,
// so that a write that was undone is no edit. Maps are compared entry by entry, lists of equal length element by
// element; a list of another length is one edit. A new map with entries is no edit, but each of its entries is; a new
// empty map is one. Only written nodes are visited, in no particular order.
func (d *Document) Edits(yield func(Edit) bool) {
	d.path = d.path[:0]
	d.diffKept(ObjectRoot, yield)
}

// EditsWithin reports whether all writes are at or below entries of the object for which inside returns true.
func (d *Document) EditsWithin(inside func(key string) bool) bool {
	for c := d.nodes[ObjectRoot].first; c != 0; {
		m := &d.nodes[c]
		if m.flags&fDirty != 0 && !inside(m.key) {
			return false
		}
		c = m.next
	}
	return true
}

// The diff functions report the differences at d.path and below. They return false if yield did.

func (d *Document) pushSegment(s Segment) { d.path = append(d.path, s) }
func (d *Document) popSegment()           { d.path = d.path[:len(d.path)-1] }

func keySegment(k string) Segment { return Segment{Key: k, Index: -1} }

// diffKept compares a node that still has its base: values that were not written are equal.
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
		if s < 0 && !d.diffChild(Segment{Index: i}, ^s, elems[i], true, yield) {
			return false
		}
	}
	return true
}

// diffChild compares an entry or element of a node that still has its base.
func (d *Document) diffChild(s Segment, id int32, before any, inBase bool, yield func(Edit) bool) (more bool) {
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
		d.pushSegment(Segment{Index: i})
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

// diffAdded reports a value that is not in the base.
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
