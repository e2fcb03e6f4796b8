// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "github.com/refract-project/refract/host/document/fieldpath"

// indexFrom is the number of children from which a map has an index in addition to its linked list.
const indexFrom = 16

// visitRoute returns the node of the value at a route, and creates missing nodes on the path. It returns 0 if the
// value is absent.
func (d *Document) visitRoute(id int32, r *fieldpath.Route) (int32, error) {
	if d.nodes[id].flags&fReadOnly != 0 {
		return d.visitReadOnly(id, r)
	}
	for at := range r.Hops {
		var err error
		if id, err = d.visitStep(id, r, at); err != nil || id == 0 {
			return 0, err
		}
	}
	return id, nil
}

// visitReadOnly does the same as visitRoute for a read-only root. It creates only the last node. The parents are not
// needed, because nothing below the root can be written.
func (d *Document) visitReadOnly(id int32, r *fieldpath.Route) (int32, error) {
	v, err := d.resolveRoute(id, r)
	if err != nil || v.kind == Absent || v.id != 0 {
		return v.id, err
	}
	return d.addBase(id, v.raw)
}

func (d *Document) visitStep(id int32, r *fieldpath.Route, at int) (int32, error) {
	kind, h := d.nodes[id].kind, &r.Hops[at]
	if h.Wild && kind > Null {
		return 0, noWildcard(r)
	}
	switch kind {
	case Absent, Null:
		return 0, nil
	case Map:
		return d.visitField(id, h.Name)
	case List:
		if h.Index < 0 {
			return 0, noNumber(r, at)
		}
		return d.visitElem(id, int(h.Index))
	default:
		return 0, wrongKind(r.Text, kind, "a map or list")
	}
}

// visitField returns the node of a map's entry, or 0 if the entry is absent.
func (d *Document) visitField(id int32, key fieldpath.Name) (int32, error) {
	if c := d.visitedChild(id, key.Text); c != 0 {
		if d.nodes[c].kind == Absent {
			return 0, nil
		}
		return c, nil
	}
	raw, ok := d.nodes[id].baseFields()[key.Text]
	if !ok {
		return 0, nil
	}
	if d.nodes[id].flags&fReadOnly != 0 {
		return d.addBase(id, raw)
	}
	return d.linkChild(id, key, raw, true)
}

// addBase adds a node for a value of the base.
func (d *Document) addBase(parent int32, raw any) (int32, error) {
	c, err := d.addNode(parent)
	if err != nil {
		return 0, err
	}
	n := &d.nodes[c]
	n.base, n.kind = raw, kindOf(raw)
	n.flags |= fBase
	return c, nil
}

// linkChild adds a child to a map. The child has a value of the base, or is absent for now.
func (d *Document) linkChild(id int32, key fieldpath.Name, raw any, inBase bool) (int32, error) {
	c, err := d.addNode(id)
	if err != nil {
		return 0, err
	}
	if id < d.undo.mark {
		d.logNode(id)
	}
	n, p := &d.nodes[c], &d.nodes[id]
	if inBase {
		n.base, n.kind = raw, kindOf(raw)
		n.flags |= fBase | fInBase
	}
	if n.key = key.Text; key.Owned {
		n.flags |= fOwned
	} else {
		n.key = d.keepString(key.Text)
	}
	n.next, p.first = p.first, c
	p.count++
	if p.index != 0 {
		d.indexes[p.index-1][n.key] = c
	} else if p.count > indexFrom {
		d.buildIndex(id)
	}
	return c, nil
}

func (d *Document) buildIndex(id int32) {
	if d.nindex == len(d.indexes) {
		d.indexes = append(d.indexes, make(map[string]int32, 4*indexFrom))
	}
	m := d.indexes[d.nindex]
	d.nindex++
	d.nodes[id].index = int32(d.nindex)
	for c := d.nodes[id].first; c != 0; c = d.nodes[c].next {
		m[d.nodes[c].key] = c
	}
}

// visitElem returns the node of a list's element, or 0 if the list is shorter.
func (d *Document) visitElem(id int32, i int) (int32, error) {
	v := d.elementAt(id, i)
	if v.id != 0 || v.kind == Absent {
		return v.id, nil
	}
	if d.nodes[id].flags&fReadOnly != 0 {
		return d.addBase(id, v.raw)
	}
	c, err := d.addBase(id, v.raw)
	if err != nil {
		return 0, err
	}
	d.nodes[c].flags |= fInBase
	d.listSlots(id)[i] = ^c
	return c, nil
}

// listSlots returns the slots of a list, which the caller may change. They are created when the first element of the
// list is visited.
func (d *Document) listSlots(id int32) []int32 {
	if id < d.undo.mark {
		d.logNode(id)
	}
	n := &d.nodes[id]
	if n.list == 0 {
		if d.nlists == len(d.lists) {
			d.lists = append(d.lists, nil)
		}
		l := d.lists[d.nlists][:0]
		for i := range n.baseElems() {
			l = append(l, int32(i))
		}
		d.lists[d.nlists] = l
		d.work += int64(len(l))
		d.nlists++
		n.list = int32(d.nlists)
	}
	return d.lists[n.list-1]
}

// routeOf returns the parsed path. The result is valid until the next call.
func (d *Document) routeOf(path string) (*fieldpath.Route, error) {
	r, err := d.paths.Route(path)
	d.work += int64(r.Work)
	if err != nil {
		return r, badPath(err)
	}
	return r, nil
}

// nextRoute returns the next path of a text.
func (d *Document) nextRoute(l *fieldpath.Lines) (*fieldpath.Route, error) {
	r, err := l.Next()
	if err != nil {
		return r, badPath(err)
	}
	return r, d.addWork(int64(r.Work))
}
