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
	return d.follow(d.viewOf(id), path)
}

// follow needs no document below a plain value.
func (d *Document) follow(v View, path string) (View, error) {
	for s := newScanner(path); !s.done(); {
		seg, err := s.next()
		if err != nil {
			return View{}, err
		}
		if v, err = d.step(v, seg, path); err != nil {
			return View{}, err
		}
	}
	return v, nil
}

func checkPath(path string) error {
	if len(path) > MaxPathBytes {
		return fail(BadPath, path, "longer than 1024 bytes")
	}
	return nil
}

// step goes one segment down.
func (d *Document) step(v View, seg segment, path string) (View, error) {
	if seg.wildcard() && v.kind > Null {
		return View{}, noWildcard(path)
	}
	switch v.kind {
	case Absent, Null:
		return View{}, nil
	case Map:
		if v.id != 0 {
			return d.lookup(v.id, seg.text), nil
		}
		c, ok := v.raw.(map[string]any)[seg.text]
		if !ok {
			return View{}, nil
		}
		return rawView(c), nil
	case List:
		i := index(seg.text)
		if i < 0 {
			return View{}, fail(BadIndex, path, "a list's element needs a number, not "+quote(seg.text))
		}
		if v.id != 0 {
			return d.element(v.id, i), nil
		}
		if l := v.raw.([]any); i < len(l) {
			return rawView(l[i]), nil
		}
		return View{}, nil
	}
	return View{}, wrongKind(path, v.kind, "a map or list")
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
	for s := newScanner(path); !s.done() && id != 0; {
		seg, err := s.next()
		if err != nil {
			return 0, err
		}
		if id, err = d.visitStep(id, seg, path); err != nil {
			return 0, err
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
	return d.add(id, node{base: v.raw, kind: v.kind, flags: fBase})
}

func (d *Document) visitStep(id int32, seg segment, path string) (int32, error) {
	kind := d.nodes[id].kind
	if seg.wildcard() && kind > Null {
		return 0, noWildcard(path)
	}
	switch kind {
	case Absent, Null:
		return 0, nil
	case Map:
		return d.visitField(id, seg.text)
	case List:
		i := index(seg.text)
		if i < 0 {
			return 0, fail(BadIndex, path, "a list's element needs a number, not "+quote(seg.text))
		}
		return d.visitElem(id, i)
	default:
		return 0, wrongKind(path, kind, "a map or list")
	}
}

// visitField gives the node of a map's entry; 0 when it is absent.
func (d *Document) visitField(id int32, key string) (int32, error) {
	v := d.lookup(id, key)
	if v.id != 0 || v.kind == Absent {
		return v.id, nil
	}
	if d.nodes[id].flags&fReadOnly != 0 {
		return d.add(id, node{base: v.raw, kind: v.kind, flags: fBase})
	}
	return d.link(id, key, node{base: v.raw, kind: v.kind, flags: fBase | fInBase})
}

// link makes a new node the child of a map.
func (d *Document) link(id int32, key string, n node) (int32, error) {
	d.touch(id)
	n.key = d.keep(key)
	n.next = d.nodes[id].first
	c, err := d.add(id, n)
	if err != nil {
		return 0, err
	}
	p := &d.nodes[id]
	p.first = c
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
		return d.add(id, node{base: v.raw, kind: v.kind, flags: fBase})
	}
	d.touch(id)
	c, err := d.add(id, node{base: v.raw, kind: v.kind, flags: fBase | fInBase})
	if err != nil {
		return 0, err
	}
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
