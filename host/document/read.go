// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"unsafe"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// lookupField returns the value of key in the map with the node number id: from the visited node if there is one,
// otherwise from the base.
func (d *Document) lookupField(id int32, key string) View {
	if c := d.visitedChild(id, key); c != 0 {
		return d.viewOf(c)
	}
	if n := &d.nodes[id]; n.flags&fBase != 0 {
		if v, ok := n.base.(map[string]any)[key]; ok {
			return rawView(v)
		}
	}
	return View{}
}

// visitedChild returns the node of a map's entry, or 0 if the entry was not visited.
func (d *Document) visitedChild(id int32, key string) int32 {
	n := &d.nodes[id]
	if n.index != 0 {
		return d.indexes[n.index-1][key]
	}
	for c := n.first; c != 0; {
		m := &d.nodes[c]
		if m.key == key {
			return c
		}
		c = m.next
	}
	return 0
}

// elementAt returns the value at position i of the list with the node number id.
func (d *Document) elementAt(id int32, i int) View {
	n := &d.nodes[id]
	if n.list == 0 {
		if base := n.baseElems(); uint(i) < uint(len(base)) {
			return rawView(base[i])
		}
		return View{}
	}
	slots := d.lists[n.list-1]
	if uint(i) >= uint(len(slots)) {
		return View{}
	}
	if s := slots[i]; s < 0 {
		return d.viewOf(^s)
	}
	return rawView(n.baseElems()[slots[i]])
}

// baseElems returns the elements of a list's base, or nil if the list has no base.
func (n *node) baseElems() []any {
	if n.flags&fBase == 0 {
		return nil
	}
	l, _ := n.base.([]any)
	return l
}

// baseFields returns the entries of a map's base, or nil if the map has no base.
func (n *node) baseFields() map[string]any {
	if n.flags&fBase == 0 {
		return nil
	}
	m, _ := n.base.(map[string]any)
	return m
}

// resolveRoute returns the value at the end of a route without adding nodes. A missing value, or a value below null,
// is absent. A step into a scalar is an error, because the author of the path expected another kind.
func (d *Document) resolveRoute(id int32, r *fieldpath.Route) (View, error) {
	if m := d.topOf(id, r); m != nil {
		return followRoute(m.fields, r, 1)
	}
	return d.searchRoute(id, r)
}

// top is the map below a root that was read last, and its key. It is remembered because most paths begin with the
// same segments as the previous path.
type top struct {
	fields  map[string]any
	version uint64
	key     string
	buffer  [maxTop]byte // memory for a key that is borrowed from a guest
}

const maxTop = 24

// topOf returns the remembered map below a root if the route leads through this map, and nil otherwise.
func (d *Document) topOf(id int32, r *fieldpath.Route) *top {
	if id > ConfigRoot || len(r.Hops) < 2 {
		return nil
	}
	m, h := &d.tops[id], &r.Hops[0]
	if m.version != d.version || h.Wild || m.key != h.Text {
		return nil
	}
	return m
}

// rememberTop remembers the value at the first hop of a route with several hops.
func (d *Document) rememberTop(id int32, key fieldpath.Name, raw any) {
	if id > ConfigRoot || !key.Owned && len(key.Text) > maxTop {
		return
	}
	fields, ok := raw.(map[string]any)
	if !ok {
		return
	}
	m := &d.tops[id]
	m.fields, m.version, m.key, d.topped = fields, d.version, key.Text, true
	if !key.Owned {
		m.key = unsafe.String(&m.buffer[0], copy(m.buffer[:], key.Text))
	}
}

func (d *Document) searchRoute(id int32, r *fieldpath.Route) (View, error) {
	for at := range r.Hops {
		h, n := &r.Hops[at], &d.nodes[id]
		if n.kind != Map || h.Wild {
			v, err := d.stepHop(d.viewOf(id), r, at)
			if err != nil || v.kind == Absent {
				return View{}, err
			}
			if v.id == 0 {
				return followRoute(v.raw, r, at+1)
			}
			id = v.id
			continue
		}
		if c := d.visitedChild(id, h.Text); c != 0 {
			id = c
			continue
		}
		raw, ok := n.baseFields()[h.Text]
		if !ok {
			return View{}, nil
		}
		if !r.IsLast(at) {
			d.rememberTop(id, h.Name, raw)
		}
		return followRoute(raw, r, at+1)
	}
	return d.viewOf(id), nil
}

// followRoute resolves the rest of a route, starting at a plain value.
func followRoute(raw any, r *fieldpath.Route, at int) (View, error) {
	for ; at < len(r.Hops); at++ {
		h := &r.Hops[at]
		if m, ok := raw.(map[string]any); ok && !h.Wild {
			if raw, ok = m[h.Text]; !ok {
				return View{}, nil
			}
			continue
		}
		v, err := (*Document)(nil).stepHop(rawView(raw), r, at)
		if err != nil || v.kind == Absent {
			return View{}, err
		}
		raw = v.raw
	}
	return rawView(raw), nil
}

// stepHop resolves one hop, starting at v.
func (d *Document) stepHop(v View, r *fieldpath.Route, at int) (View, error) {
	h := &r.Hops[at]
	if h.Wild && v.kind > Null {
		return View{}, noWildcard(r)
	}
	switch v.kind {
	case Absent, Null:
		return View{}, nil
	case Map:
		return v.Field(h.Text), nil
	case List:
		if h.Index < 0 {
			return View{}, noNumber(r, at)
		}
		return v.Index(int(h.Index)), nil
	}
	return View{}, wrongKind(r.Text, v.kind, "a map or list")
}

// sizeOf returns the number of entries of a map or list.
func (d *Document) sizeOf(id int32) int {
	n := &d.nodes[id]
	switch n.kind {
	case Map:
		return len(n.baseFields()) + int(n.delta)
	case List:
		if n.list != 0 {
			return len(d.lists[n.list-1])
		}
		return len(n.baseElems())
	}
	return 0
}
