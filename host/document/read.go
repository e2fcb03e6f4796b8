// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "unsafe"

// lookupField returns the value of key in the map id: from the visited node if there is one, otherwise from the base.
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

// visitedChild returns the visited entry of a map, or 0 if it was not visited.
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

// elementAt returns the value at position i of the list id.
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

// baseElems returns the base of a list, or nil if it has no base.
func (n *node) baseElems() []any {
	if n.flags&fBase == 0 {
		return nil
	}
	l, _ := n.base.([]any)
	return l
}

// baseFields returns the base of a map, or nil if it has no base.
func (n *node) baseFields() map[string]any {
	if n.flags&fBase == 0 {
		return nil
	}
	m, _ := n.base.(map[string]any)
	return m
}

// resolveRoute follows a path without recording it. A missing value, or one below null, is absent. A step into a scalar is
// an error, because the author of the path expected another kind.
func (d *Document) resolveRoute(id int32, r *route) (View, error) {
	if m := d.topOf(id, r); m != nil {
		return followRoute(m.fields, r, 1)
	}
	return d.searchRoute(id, r)
}

// top is the map below a root that was read last, and its key: most paths begin like the previous one.
type top struct {
	fields  map[string]any
	version uint64
	key     string
	buffer  [maxTop]byte // memory for a borrowed key
}

const maxTop = 24

// topOf returns the map last read below a root if a path leads through it, otherwise nil.
func (d *Document) topOf(id int32, r *route) *top {
	if id > ConfigRoot || len(r.hops) < 2 {
		return nil
	}
	m, h := &d.tops[id], &r.hops[0]
	if m.version != d.version || h.wild || m.key != h.text {
		return nil
	}
	return m
}

// rememberTop stores the value at the first hop of a longer route.
func (d *Document) rememberTop(id int32, key name, raw any) {
	if id > ConfigRoot || !key.owned && len(key.text) > maxTop {
		return
	}
	fields, ok := raw.(map[string]any)
	if !ok {
		return
	}
	m := &d.tops[id]
	m.fields, m.version, m.key, d.topped = fields, d.version, key.text, true
	if !key.owned {
		m.key = unsafe.String(&m.buffer[0], copy(m.buffer[:], key.text))
	}
}

func (d *Document) searchRoute(id int32, r *route) (View, error) {
	for at := range r.hops {
		h, n := &r.hops[at], &d.nodes[id]
		if n.kind != Map || h.wild {
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
		if c := d.visitedChild(id, h.text); c != 0 {
			id = c
			continue
		}
		raw, ok := n.baseFields()[h.text]
		if !ok {
			return View{}, nil
		}
		if !r.isLast(at) {
			d.rememberTop(id, h.name, raw)
		}
		return followRoute(raw, r, at+1)
	}
	return d.viewOf(id), nil
}

// followRoute resolves the rest of a route below a plain value.
func followRoute(raw any, r *route, at int) (View, error) {
	for ; at < len(r.hops); at++ {
		h := &r.hops[at]
		if m, ok := raw.(map[string]any); ok && !h.wild {
			if raw, ok = m[h.text]; !ok {
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

// stepHop resolves one hop below v.
func (d *Document) stepHop(v View, r *route, at int) (View, error) {
	h := &r.hops[at]
	if h.wild && v.kind > Null {
		return View{}, r.noWildcard()
	}
	switch v.kind {
	case Absent, Null:
		return View{}, nil
	case Map:
		return v.Field(h.text), nil
	case List:
		if h.index < 0 {
			return View{}, r.noNumber(at)
		}
		return v.Index(int(h.index)), nil
	}
	return View{}, wrongKind(r.text, v.kind, "a map or list")
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
