// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"unicode/utf8"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// visitContainer returns the node of the container in which the last hop is an entry or element. Missing maps on the
// path are created.
func (d *Document) visitContainer(id int32, r *fieldpath.Route) (int32, error) {
	for at := range len(r.Hops) - 1 {
		var err error
		if id, err = d.descendHop(id, r, at); err != nil {
			return 0, err
		}
	}
	return id, nil
}

// descendHop resolves one hop. It creates a missing map, or a missing list if the next hop appends.
func (d *Document) descendHop(id int32, r *fieldpath.Route, at int) (int32, error) {
	h := &r.Hops[at]
	if h.Wild {
		return 0, noWildcard(r)
	}
	switch k := d.nodes[id].kind; k {
	case List:
		c, err := d.visitStep(id, r, at)
		if err == nil && c == 0 {
			err = newError(BadIndex, r.Text, "past the end of the list")
		}
		return c, err
	case Null:
		if h.Push {
			return 0, noNumber(r, at)
		}
		if err := d.writeNode(id, content{kind: Map}); err != nil {
			return 0, err
		}
	case Map:
	default:
		return 0, wrongKind(r.Text, k, "a map or list")
	}
	if v := d.lookupField(id, h.Text); v.kind > Null {
		return d.visitField(id, h.Name)
	}
	return d.putField(id, h.Name, content{kind: containerKind(&r.Hops[at+1])}, r.Text)
}

// putContent sets the entry or element for the last hop in the container with the node number id.
func (d *Document) putContent(id int32, r *fieldpath.Route, c content) (int32, error) {
	h := &r.Hops[len(r.Hops)-1]
	if h.Wild {
		return 0, noWildcard(r)
	}
	switch k := d.nodes[id].kind; k {
	case List:
		return d.putElem(id, r, h, c)
	case Null:
		if err := d.writeNode(id, content{kind: containerKind(h)}); err != nil {
			return 0, err
		}
		if h.Push {
			return d.insertElement(id, d.sizeOf(id), c)
		}
	case Map:
	default:
		return 0, wrongKind(r.Text, k, "a map or list")
	}
	return d.putField(id, h.Name, c, r.Text)
}

func (d *Document) putField(id int32, key fieldpath.Name, c content, path string) (int32, error) {
	v := d.lookupField(id, key.Text)
	if c.equalsView(v) {
		return d.visitField(id, key)
	}
	at := v.id
	if at == 0 {
		if !utf8.ValidString(key.Text) {
			return 0, newError(BadValue, path, "the key is not valid UTF-8")
		}
		d.work += int64(len(key.Text)) / 4
		if err := d.Spend(len(key.Text)); err != nil {
			return 0, err
		}
		var err error
		if at, err = d.linkChild(id, key, v.raw, v.kind != Absent); err != nil {
			return 0, err
		}
	}
	return at, d.writeNode(at, c)
}

func (d *Document) putElem(id int32, r *fieldpath.Route, h *fieldpath.Hop, c content) (int32, error) {
	if h.Push {
		return d.insertElement(id, d.sizeOf(id), c)
	}
	i := int(h.Index)
	if i < 0 {
		return 0, newError(BadIndex, r.Text, "a list's element needs a number or -, not "+quotePath(h.Text))
	}
	v := d.elementAt(id, i)
	if v.kind == Absent {
		return 0, newError(BadIndex, r.Text, "past the end of the list")
	}
	at, err := d.visitElem(id, i)
	if err != nil || c.equalsView(v) {
		return at, err
	}
	return at, d.writeNode(at, c)
}

// writeNode replaces the value of a node. Nodes below it become absent.
func (d *Document) writeNode(id int32, c content) error {
	d.markDirty(id)
	d.logRewrite(id)
	d.dropChildren(id)
	n := &d.nodes[id]
	if n.kind == Absent && n.parent != 0 && d.nodes[n.parent].kind == Map {
		d.nodes[n.parent].delta++
	}
	n.flags &^= fBase | fArena | fReshaped
	n.base, n.num, n.str, n.kind, n.state = nil, c.num, c.str, c.kind, set
	switch {
	case c.shared:
		n.base = c.base
		n.flags |= fBase
	case c.kind == String && !c.stay:
		n.str = d.keepString(c.str)
		n.flags |= fArena
	}
	return nil
}

// markDirty prepares a node for a change: it marks the node and all nodes up to the root as dirty.
func (d *Document) markDirty(id int32) {
	d.version++
	for id != 0 && !d.isEdited(id) {
		n := &d.nodes[id]
		if id < d.undo.mark {
			d.logNode(id)
			n.flags |= fEdited
		}
		n.flags |= fDirty
		id = n.parent
	}
}

// dropChildren makes all visited nodes below id absent, because their values were replaced.
func (d *Document) dropChildren(id int32) {
	n := &d.nodes[id]
	for c := n.first; c != 0; c = d.nodes[c].next {
		d.killNode(c)
	}
	if n.list != 0 {
		for _, s := range d.lists[n.list-1] {
			if s < 0 {
				d.killNode(^s)
			}
		}
	}
	n = &d.nodes[id]
	n.first, n.count, n.delta, n.index, n.list = 0, 0, 0, 0, 0
}

func (d *Document) killNode(id int32) {
	d.logRewrite(id)
	d.dropChildren(id)
	n := &d.nodes[id]
	n.base, n.str, n.num = nil, "", 0
	n.kind, n.state = Absent, removed
	n.flags &^= fBase | fArena | fReshaped
	d.work += workEntry
}

// containerKind returns the kind of container that is created if the hop's container is missing.
func containerKind(h *fieldpath.Hop) Kind {
	if h.Push {
		return List
	}
	return Map
}
