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

// indexFrom is the number of children from which a map keeps an index instead of a list to search.
const indexFrom = 16

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

// visit gives the node of the value that a path leads to, and the nodes on the way; 0 when it is absent.
func (d *Document) visit(id int32, path string) (int32, error) {
	if err := checkPath(path); err != nil {
		return 0, err
	}
	if id == 0 {
		return 0, nil
	}
	if d.nodes[id].flags&fReadOnly != 0 {
		return d.visitReadOnly(id, path)
	}
	for s := newScanner(path); !s.done(); {
		if !s.next() {
			return 0, s.err()
		}
		var err error
		if id, err = d.visitStep(id, &s); err != nil {
			return 0, err
		}
		if id == 0 {
			return 0, s.finish()
		}
	}
	return id, nil
}

// visitReadOnly needs no node but the last: nothing below it can be written, so that nothing has to find it again.
func (d *Document) visitReadOnly(id int32, path string) (int32, error) {
	v, err := d.resolve(id, path)
	if err != nil || v.kind == Absent || v.id != 0 {
		return v.id, err
	}
	return d.addBase(id, v.raw)
}

func (d *Document) visitStep(id int32, s *scanner) (int32, error) {
	kind := d.nodes[id].kind
	if s.wildcard() && kind > Null {
		return 0, noWildcard(s.path)
	}
	switch kind {
	case Absent, Null:
		return 0, nil
	case Map:
		return d.visitField(id, s.text())
	case List:
		i := index(s.text())
		if i < 0 {
			return 0, fail(BadIndex, s.path, "a list's element needs a number, not "+quote(s.text()))
		}
		return d.visitElem(id, i)
	default:
		return 0, wrongKind(s.path, kind, "a map or list")
	}
}

// visitField gives the node of a map's entry; 0 when it is absent.
func (d *Document) visitField(id int32, key string) (int32, error) {
	if c := d.child(id, key); c != 0 {
		if d.nodes[c].kind == Absent {
			return 0, nil
		}
		return c, nil
	}
	raw, ok := d.nodes[id].fields()[key]
	if !ok {
		return 0, nil
	}
	if d.nodes[id].flags&fReadOnly != 0 {
		return d.addBase(id, raw)
	}
	return d.link(id, key, raw, true)
}

// addBase adds a node that shows a value of the base.
func (d *Document) addBase(parent int32, raw any) (int32, error) {
	c, err := d.add(parent)
	if err != nil {
		return 0, err
	}
	n := &d.nodes[c]
	n.base, n.kind = raw, KindOf(raw)
	n.flags |= fBase
	return c, nil
}

// link makes a new node the child of a map: of the base's value, or absent as yet.
func (d *Document) link(id int32, key string, raw any, inBase bool) (int32, error) {
	d.touch(id)
	c, err := d.add(id)
	if err != nil {
		return 0, err
	}
	n, p := &d.nodes[c], &d.nodes[id]
	if inBase {
		n.base, n.kind = raw, KindOf(raw)
		n.flags |= fBase | fInBase
	}
	n.key = d.keep(key)
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

// visitElem gives the node of a list's element; 0 past the end.
func (d *Document) visitElem(id int32, i int) (int32, error) {
	v := d.element(id, i)
	if v.id != 0 || v.kind == Absent {
		return v.id, nil
	}
	if d.nodes[id].flags&fReadOnly != 0 {
		return d.addBase(id, v.raw)
	}
	d.touch(id)
	c, err := d.addBase(id, v.raw)
	if err != nil {
		return 0, err
	}
	d.nodes[c].flags |= fInBase
	d.slots(id)[i] = ^c
	return c, nil
}

// slots gives the slots of a list, made on the first visit of one of its elements.
func (d *Document) slots(id int32) []int32 {
	n := &d.nodes[id]
	if n.list == 0 {
		if d.nlists == len(d.lists) {
			d.lists = append(d.lists, nil)
		}
		l := d.lists[d.nlists][:0]
		for i := range n.elems() {
			l = append(l, int32(i))
		}
		d.lists[d.nlists] = l
		d.work += int64(len(l)) / 8
		d.nlists++
		n.list = int32(d.nlists)
	}
	return d.lists[n.list-1]
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
