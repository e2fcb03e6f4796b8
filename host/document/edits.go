// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// Edit is one thing that was written.
type Edit struct {
	Path    Path // valid during the callback only
	Node    Node // absent when removed
	Removed bool
	Author  uint8
}

// Edits calls yield for what was written, and looks at nothing else, until yield returns false. A value that was replaced
// is one edit, and what was written into it afterwards further ones; a map that a write made on its way is none, but those
// below it are; a list that grew or shrank is one. No particular order.
func (d *Document) Edits(yield func(Edit) bool) {
	d.path = d.path[:0]
	d.edits(ObjectRoot, yield)
}

// EditsWithin tells whether all that was written lies at or below entries of the object that inside says yes to.
func (d *Document) EditsWithin(inside func(key string) bool) bool {
	n := &d.nodes[ObjectRoot]
	if d.wroteHere(n) {
		return false
	}
	for c := n.first; c != 0; {
		m := &d.nodes[c]
		if m.flags&fDirty != 0 && !inside(m.key) {
			return false
		}
		c = m.next
	}
	return true
}

func (d *Document) edits(id int32, yield func(Edit) bool) bool {
	n := &d.nodes[id]
	if d.wroteHere(n) && !yield(Edit{Path: d.path, Node: Node{d, id}, Author: n.author}) {
		return false
	}
	for c := n.first; c != 0; c = d.nodes[c].next {
		if !d.editsBelow(c, Segment{Key: d.nodes[c].key, Index: -1}, yield) {
			return false
		}
	}
	if n.list == 0 {
		return true
	}
	for i, s := range d.lists[n.list-1] {
		if s < 0 && !d.editsBelow(^s, Segment{Index: i}, yield) {
			return false
		}
	}
	return true
}

// wroteHere tells whether the place itself counts as an edit.
func (d *Document) wroteHere(n *node) bool {
	if n.state != set {
		return n.flags&fReshaped != 0
	}
	made := n.flags&(fBase|fInBase) == 0 && n.kind == Map && n.count > 0
	return !made
}

func (d *Document) editsBelow(c int32, seg Segment, yield func(Edit) bool) bool {
	n := &d.nodes[c]
	if n.flags&fDirty == 0 {
		return true
	}
	d.path = append(d.path, seg)
	more := true
	if n.state != removed {
		more = d.edits(c, yield)
	} else if n.flags&fInBase != 0 {
		more = yield(Edit{Path: d.path, Removed: true, Author: n.author})
	}
	d.path = d.path[:len(d.path)-1]
	return more
}
