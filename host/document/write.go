// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math"
	"unicode/utf8"
)

// SetString sets the string at path. As with all of Set…: the last segment is the key to set, an index (the element is
// replaced) or `-` (appended to the list); maps missing on the way are made; setting what is there already is no edit.
// Errors leave the Document as it was or with empty maps on the way made.
func (n Node) SetString(path, s string) error {
	if !utf8.ValidString(s) {
		return fail(BadValue, path, "the string is not valid UTF-8")
	}
	_, err := n.set(path, content{kind: String, str: s})
	return err
}

// SetInt sets a whole number.
func (n Node) SetInt(path string, i int64) error {
	_, err := n.set(path, content{kind: Int, num: uint64(i)})
	return err
}

// SetFloat sets a number; NaN and infinities, which JSON lacks, are an error.
func (n Node) SetFloat(path string, f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fail(BadValue, path, "NaN and infinity are not JSON")
	}
	_, err := n.set(path, content{kind: Float, num: math.Float64bits(f)})
	return err
}

// SetBool sets a truth value.
func (n Node) SetBool(path string, b bool) error {
	c := content{kind: Bool}
	if b {
		c.num = 1
	}
	_, err := n.set(path, c)
	return err
}

// SetNull sets null, which is not the same as Remove.
func (n Node) SetNull(path string) error {
	_, err := n.set(path, content{kind: Null})
	return err
}

// SetMap sets a new empty map and gives its node.
func (n Node) SetMap(path string) (Node, error) { return n.set(path, content{kind: Map}) }

// SetList sets a new empty list and gives its node.
func (n Node) SetList(path string) (Node, error) { return n.set(path, content{kind: List}) }

// EnsureMap gives the map at path, made when there is none (or null).
func (n Node) EnsureMap(path string) (Node, error) {
	v, err := n.At(path)
	switch {
	case err != nil:
		return Node{}, err
	case v.kind == Map:
		if err := n.writable(path); err != nil {
			return Node{}, err
		}
		return n.Get(path)
	case v.Exists():
		return Node{}, wrongKind(path, v.kind, "a map")
	case path == "" && v.kind == Null:
		if err := n.writable(path); err != nil {
			return Node{}, err
		}
		return n, n.d.write(n.id, content{kind: Map})
	}
	return n.SetMap(path)
}

// content is what a place is set to: a scalar, an empty map or list, or (base) a value shared with somebody.
type content struct {
	kind Kind
	num  uint64
	str  string
	base any
	// shared: base holds the value, str and num do not. stay: str needs no copy to the arena.
	shared, stay bool
}

func (n Node) writable(path string) error {
	if n.id == 0 {
		return fail(Gone, path, "there is nothing to write to")
	}
	m := &n.d.nodes[n.id]
	if m.flags&fReadOnly != 0 {
		return readOnly(path)
	}
	if m.kind == Absent {
		return fail(Gone, path, "the place was removed")
	}
	return nil
}

func readOnly(path string) error {
	return fail(ReadOnly, path, "the context and the configuration are read-only")
}

func (n Node) set(path string, c content) (Node, error) {
	if err := n.writable(path); err != nil {
		return Node{}, err
	}
	if err := checkPath(path); err != nil {
		return Node{}, err
	}
	if path == "" {
		return Node{}, fail(BadPath, path, "empty; a value is set in its parent")
	}
	if err := n.d.Spend(len(c.str)); err != nil {
		return Node{}, err
	}
	s := newScanner(path)
	id, err := n.d.container(n.id, &s)
	if err != nil {
		return Node{}, err
	}
	id, err = n.d.put(id, &s, c)
	return Node{n.d, id}, err
}

// container gives the place that holds the path's last segment, with the maps on the way made. The segment is then in s.
func (d *Document) container(id int32, s *scanner) (int32, error) {
	for {
		if !s.next() {
			return 0, s.err()
		}
		if s.done() {
			return id, nil
		}
		var err error
		if id, err = d.descend(id, s); err != nil {
			return 0, err
		}
	}
}

// descend goes one step down and makes a map where there is nothing.
func (d *Document) descend(id int32, s *scanner) (int32, error) {
	if s.wildcard() {
		return 0, noWildcard(s.path)
	}
	switch k := d.nodes[id].kind; k {
	case List:
		c, err := d.visitStep(id, s)
		if err == nil && c == 0 {
			err = fail(BadIndex, s.path, "past the end of the list")
		}
		return c, err
	case Null:
		if err := d.write(id, content{kind: Map}); err != nil {
			return 0, err
		}
	case Map:
	default:
		return 0, wrongKind(s.path, k, "a map or list")
	}
	if v := d.lookup(id, s.text()); v.kind > Null {
		return d.visitField(id, s.text())
	}
	return d.putField(id, s.text(), content{kind: Map}, s.path)
}

// put sets one entry or element of the container id.
func (d *Document) put(id int32, s *scanner, c content) (int32, error) {
	if s.wildcard() {
		return 0, noWildcard(s.path)
	}
	switch k := d.nodes[id].kind; k {
	case List:
		return d.putElem(id, s, c)
	case Null:
		if err := d.write(id, content{kind: Map}); err != nil {
			return 0, err
		}
	case Map:
	default:
		return 0, wrongKind(s.path, k, "a map or list")
	}
	return d.putField(id, s.text(), c, s.path)
}

func (d *Document) putField(id int32, key string, c content, path string) (int32, error) {
	v := d.lookup(id, key)
	if c.same(v) {
		return d.visitField(id, key)
	}
	at := v.id
	if at == 0 {
		if !utf8.ValidString(key) {
			return 0, fail(BadValue, path, "the key is not valid UTF-8")
		}
		if err := d.Spend(len(key)); err != nil {
			return 0, err
		}
		var err error
		if at, err = d.link(id, key, v.raw, v.kind != Absent); err != nil {
			return 0, err
		}
	}
	return at, d.write(at, c)
}

func (d *Document) putElem(id int32, s *scanner, c content) (int32, error) {
	if s.text() == "-" && !s.verbatim {
		return d.push(id, c)
	}
	i := index(s.text())
	if i < 0 {
		return 0, fail(BadIndex, s.path, "a list's element needs a number or -, not "+quote(s.text()))
	}
	v := d.element(id, i)
	if v.kind == Absent {
		return 0, fail(BadIndex, s.path, "past the end of the list")
	}
	at, err := d.visitElem(id, i)
	if err != nil || c.same(v) {
		return at, err
	}
	return at, d.write(at, c)
}

// push appends to a list.
func (d *Document) push(id int32, c content) (int32, error) {
	d.edit(id)
	at, err := d.add(id)
	if err != nil {
		return 0, err
	}
	l := append(d.slots(id), ^at)
	n := &d.nodes[id]
	d.lists[n.list-1] = l
	n.flags |= fReshaped
	n.author = d.author
	return at, d.write(at, c)
}

// same tells that a place already holds the content. A shared map or list is compared by the caller, who knows the budget.
func (c *content) same(v View) bool {
	if v.kind != c.kind {
		return false
	}
	switch c.kind {
	case Null:
		return true
	case Map, List:
		return !c.shared && v.Len() == 0
	case String:
		s, _ := v.Text()
		return s == c.str
	case Int:
		i, _ := v.Int()
		return uint64(i) == c.num
	case Bool:
		b, _ := v.Bool()
		return b == (c.num != 0)
	}
	f, _ := v.Float()
	return math.Float64bits(f) == c.num
}

// write replaces what is at a place. Nodes below become absent.
func (d *Document) write(id int32, c content) error {
	d.edit(id)
	d.drop(id)
	n := &d.nodes[id]
	if n.kind == Absent && n.parent != 0 && d.nodes[n.parent].kind == Map {
		d.touch(n.parent)
		d.nodes[n.parent].delta++
	}
	n.flags &^= fBase | fArena | fReshaped
	n.base, n.num, n.str, n.kind, n.state, n.author = nil, c.num, c.str, c.kind, set, d.author
	switch {
	case c.shared:
		n.base = c.base
		n.flags |= fBase
	case c.kind == String && !c.stay:
		n.str = d.keep(c.str)
		n.flags |= fArena
	}
	return nil
}

// edit prepares a place for a change: saved for Rollback, and dirty up to the root.
func (d *Document) edit(id int32) {
	d.version++
	d.touch(id)
	for id != 0 && d.nodes[id].flags&fDirty == 0 {
		d.touch(id)
		n := &d.nodes[id]
		n.flags |= fDirty
		id = n.parent
	}
}

// drop makes all visited places below id absent: what they named is gone.
func (d *Document) drop(id int32) {
	n := &d.nodes[id]
	for c := n.first; c != 0; c = d.nodes[c].next {
		d.kill(c)
	}
	if n.list != 0 {
		for _, s := range d.lists[n.list-1] {
			if s < 0 {
				d.kill(^s)
			}
		}
	}
	n = &d.nodes[id]
	n.first, n.count, n.delta, n.index, n.list = 0, 0, 0, 0, 0
}

func (d *Document) kill(id int32) {
	d.touch(id)
	d.drop(id)
	n := &d.nodes[id]
	n.base, n.str, n.num = nil, "", 0
	n.kind, n.state = Absent, removed
	n.flags &^= fBase | fArena | fReshaped
	d.work++
}
