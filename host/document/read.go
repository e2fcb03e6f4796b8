// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// lookup finds key in the map id: a node when it was visited, else the base's value.
func (d *Document) lookup(id int32, key string) View {
	if c := d.child(id, key); c != 0 {
		return d.viewOf(c)
	}
	if n := &d.nodes[id]; n.flags&fBase != 0 {
		if v, ok := n.base.(map[string]any)[key]; ok {
			return rawView(v)
		}
	}
	return View{}
}

// child finds the visited entry of a map; 0 when there is none.
func (d *Document) child(id int32, key string) int32 {
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

// element finds position i of the list id.
func (d *Document) element(id int32, i int) View {
	n := &d.nodes[id]
	if n.list == 0 {
		if base := n.elems(); uint(i) < uint(len(base)) {
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
	return rawView(n.elems()[slots[i]])
}

// elems is the base of a list; nil when it has none.
func (n *node) elems() []any {
	if n.flags&fBase == 0 {
		return nil
	}
	l, _ := n.base.([]any)
	return l
}

// fields is the base of a map; nil when it has none.
func (n *node) fields() map[string]any {
	if n.flags&fBase == 0 {
		return nil
	}
	m, _ := n.base.(map[string]any)
	return m
}

// resolve follows a path without leaving a trace. What is not there, or below null, is absent; a step into a scalar is
// an error, since the path's author took it for something else.
func (d *Document) resolve(id int32, path string) (View, error) {
	if err := checkPath(path); err != nil {
		return View{}, err
	}
	s := newScanner(path)
	if m := d.top(id, path); m != nil {
		s.pos = int32(m.size)
		return follow(View{raw: m.fields, kind: Map}, &s, nil)
	}
	return d.search(id, &s)
}

// top is the map below a root that was read last, with its key and the dot behind it: most paths begin like the one before.
type top struct {
	fields  map[string]any
	version uint64
	size    uint8
	key     [maxTop]byte
}

const maxTop = 23

// top is the map last read below a root if a path leads through it, else nil.
func (d *Document) top(id int32, path string) *top {
	if id > ConfigRoot {
		return nil
	}
	m := &d.tops[id]
	if m.version != d.version || len(path) <= int(m.size) || path[:m.size] != string(m.key[:m.size]) {
		return nil
	}
	return m
}

// remember is called with the value at the first segment of a path, behind which the scanner is.
func (d *Document) remember(id int32, raw any, s *scanner) {
	if id > ConfigRoot || s.done() || int(s.pos) > maxTop || s.path[s.pos-1] != '.' || s.verbatim {
		return
	}
	if fields, ok := raw.(map[string]any); ok {
		m := &d.tops[id]
		m.fields, m.version, d.topped = fields, d.version, true
		m.size = uint8(copy(m.key[:], s.path[:s.pos]))
	}
}

func (d *Document) search(id int32, s *scanner) (View, error) {
	for !s.done() {
		if !s.next() {
			return View{}, s.err()
		}
		n := &d.nodes[id]
		if n.kind != Map || s.wildcard() {
			v, err := d.step(d.viewOf(id), s)
			if err != nil || v.id == 0 {
				return follow(v, s, err)
			}
			id = v.id
			continue
		}
		if c := d.child(id, s.text()); c != 0 {
			id = c
			continue
		}
		raw, ok := n.fields()[s.text()]
		if !ok {
			return View{}, s.finish()
		}
		d.remember(id, raw, s)
		return follow(rawView(raw), s, nil)
	}
	return d.viewOf(id), nil
}

func checkPath(path string) error {
	if len(path) > MaxPathBytes {
		return fail(BadPath, path, "longer than 1024 bytes")
	}
	return nil
}

// follow is the rest of resolve below a plain value.
func follow(v View, s *scanner, err error) (View, error) {
	for err == nil && !s.done() {
		if !s.next() {
			return View{}, s.err()
		}
		if m, ok := v.raw.(map[string]any); ok && !s.wildcard() {
			raw, ok := m[s.text()]
			if !ok {
				return View{}, s.finish()
			}
			v = rawView(raw)
			continue
		}
		v, err = (*Document)(nil).step(v, s)
	}
	return v, err
}

// step goes one segment down, in whatever v is.
func (d *Document) step(v View, s *scanner) (View, error) {
	if s.wildcard() && v.kind > Null {
		return View{}, noWildcard(s.path)
	}
	switch v.kind {
	case Absent, Null:
		return View{}, nil
	case Map:
		return v.Field(s.text()), nil
	case List:
		i := index(s.text())
		if i < 0 {
			return View{}, fail(BadIndex, s.path, "a list's element needs a number, not "+quote(s.text()))
		}
		return v.Index(i), nil
	}
	return View{}, wrongKind(s.path, v.kind, "a map or list")
}

// size is the number of entries of a map or list.
func (d *Document) size(id int32) int {
	n := &d.nodes[id]
	switch n.kind {
	case Map:
		return len(n.fields()) + int(n.delta)
	case List:
		if n.list != 0 {
			return len(d.lists[n.list-1])
		}
		return len(n.elems())
	}
	return 0
}
