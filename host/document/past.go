// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strings"

// A View with a negative node number is the value of the node at the last Commit. It is read from the logged state of
// the nodes.

// Base returns the object without the edits since the last Commit or Reset.
func (d *Document) Base() View {
	if d.undo.mark == 0 {
		return rawView(d.nodes[ObjectRoot].base)
	}
	return d.pastView(ObjectRoot)
}

func (d *Document) pastView(id int32) View { return View{d: d, id: -id, kind: d.past(id).kind} }

// past returns a node in its state at the last Commit.
func (d *Document) past(id int32) *node {
	n := &d.nodes[id]
	if n.log != 0 {
		return &d.undo.log[n.log-1].was
	}
	return n
}

// nodeOf returns the node of a view, in the current or the earlier state, or nil if the view has no node.
func (v View) nodeOf() *node {
	if v.id > 0 {
		return &v.d.nodes[v.id]
	}
	return v.d.past(-v.id)
}

// pastChild returns the node of a map's entry if it was visited before the last Commit, or 0.
func (d *Document) pastChild(n *node, key string) int32 {
	if n.index != 0 {
		if c := d.indexes[n.index-1][key]; c < d.undo.mark {
			return c
		}
		return 0
	}
	for c := n.first; c != 0; c = d.nodes[c].next {
		if d.nodes[c].key == key {
			return c
		}
	}
	return 0
}

func (d *Document) pastField(id int32, key string) View {
	n := d.past(id)
	if c := d.pastChild(n, key); c != 0 {
		return d.pastView(c)
	}
	if v, ok := n.baseFields()[key]; ok {
		return rawView(v)
	}
	return View{}
}

// pastSlots returns the slots of a list at the last Commit. The list must have had slots.
func (d *Document) pastSlots(id int32) []int32 {
	n := &d.nodes[id]
	if n.log != 0 {
		e := &d.undo.log[n.log-1]
		return d.undo.slots[e.from:e.to]
	}
	return d.lists[n.list-1]
}

func (d *Document) pastElem(id int32, i int) View {
	n := d.past(id)
	base := n.baseElems()
	if n.list != 0 {
		slots := d.pastSlots(id)
		if uint(i) >= uint(len(slots)) {
			return View{}
		}
		if s := slots[i]; s < 0 {
			return d.pastView(^s)
		}
		i = int(slots[i])
	}
	if uint(i) < uint(len(base)) {
		return rawView(base[i])
	}
	return View{}
}

// pastSize returns the number of entries or elements at the last Commit.
func (d *Document) pastSize(id int32) int {
	n := d.past(id)
	switch {
	case n.kind == Map:
		return len(n.baseFields()) + int(n.delta)
	case n.list != 0:
		return len(d.pastSlots(id))
	}
	return len(n.baseElems())
}

// pastFields iterates over the entries of a map at the last Commit. The keys are borrowed: see View.Text.
func (d *Document) pastFields(id int32, yield func(string, View) bool) {
	n := d.past(id)
	for k, e := range n.baseFields() {
		if d.pastChild(n, k) == 0 && !yield(k, rawView(e)) {
			return
		}
	}
	for c := n.first; c != 0; c = d.nodes[c].next {
		if m := d.past(c); m.state != removed && !yield(m.key, d.pastView(c)) {
			return
		}
	}
}

// pastValue returns the plain value of a node at the last Commit. Unchanged parts are shared with the base.
func (d *Document) pastValue(id int32) any {
	n := d.past(id)
	if n.flags&(fBase|fDirty) == fBase {
		return n.base
	}
	v := d.pastView(id)
	switch n.kind {
	case Map:
		m := make(map[string]any, v.Len())
		for k, e := range v.fields {
			m[strings.Clone(k)] = e.Value()
		}
		return m
	case List:
		l := make([]any, v.Len())
		for i := range l {
			l[i] = v.Index(i).Value()
		}
		return l
	case String:
		s, _ := v.Text()
		return strings.Clone(s)
	case Int:
		i, _ := v.Int()
		return i
	case Float:
		f, _ := v.Float()
		return f
	case Bool:
		b, _ := v.Bool()
		return b
	}
	return nil
}

// fields iterates over the entries of a map at the last Commit.
func (v View) fields(yield func(string, View) bool) { v.d.pastFields(-v.id, yield) }
