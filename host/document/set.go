// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math"
	"unicode/utf8"
)

// SetString sets the string at path. The following rules apply to all setters: The last segment of the path is a key
// to set, an index whose element is replaced, or `-`, which appends to the list. Missing maps on the path are
// created, and so is a missing list if the last segment is `-`. Setting an equal value is not an edit. After an error
// the Document is unchanged, except that empty maps on the path may have been created.
func (n Node) SetString(path, s string) error {
	if !utf8.ValidString(s) {
		return newError(BadValue, path, "the string is not valid UTF-8")
	}
	_, err := n.setContent(path, content{kind: String, str: s})
	return err
}

// SetInt sets a whole number; see SetString.
func (n Node) SetInt(path string, i int64) error {
	_, err := n.setContent(path, content{kind: Int, num: uint64(i)})
	return err
}

// SetFloat sets a number; see SetString. It returns an error for NaN and infinities, because JSON does not have them.
func (n Node) SetFloat(path string, f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return newError(BadValue, path, "NaN and infinity are not JSON")
	}
	_, err := n.setContent(path, content{kind: Float, num: math.Float64bits(f)})
	return err
}

// SetBool sets a boolean; see SetString.
func (n Node) SetBool(path string, b bool) error {
	c := content{kind: Bool}
	if b {
		c.num = 1
	}
	_, err := n.setContent(path, c)
	return err
}

// SetNull sets null; see SetString. In contrast to Remove, the entry continues to exist.
func (n Node) SetNull(path string) error {
	_, err := n.setContent(path, content{kind: Null})
	return err
}

// SetMap sets a new empty map and returns its node; see SetString.
func (n Node) SetMap(path string) (Node, error) { return n.setContent(path, content{kind: Map}) }

// SetList sets a new empty list and returns its node; see SetString.
func (n Node) SetList(path string) (Node, error) { return n.setContent(path, content{kind: List}) }

// EnsureMap returns the map at path, and creates it if it is missing or null. If the last segment is `-`, it always
// appends a new map.
func (n Node) EnsureMap(path string) (Node, error) {
	v, err := n.presentValue(path)
	switch {
	case err != nil:
		return Node{}, err
	case v.kind == Map:
		if err := n.checkWritable(path); err != nil {
			return Node{}, err
		}
		return n.Get(path)
	case v.Exists():
		return Node{}, wrongKind(path, v.kind, "a map")
	case path == "" && v.kind == Null:
		if err := n.checkWritable(path); err != nil {
			return Node{}, err
		}
		return n, n.d.writeNode(n.id, content{kind: Map})
	}
	return n.SetMap(path)
}

// content is the new value of a node: a scalar, an empty map or list, or a shared value in base.
type content struct {
	kind Kind
	num  uint64
	str  string
	base any
	// shared means that the value is in base, and not in str and num. stay means that str need not be copied to the
	// arena.
	shared, stay bool
}

func (n Node) checkWritable(path string) error {
	if n.id == 0 {
		return newError(Gone, path, "there is nothing to write to")
	}
	m := &n.d.nodes[n.id]
	if m.flags&fReadOnly != 0 {
		return readOnly(path)
	}
	if m.kind == Absent {
		return newError(Gone, path, "the place was removed")
	}
	return nil
}

func readOnly(path string) error {
	return newError(ReadOnly, path, "the context and the configuration are read-only")
}

func (n Node) setContent(path string, c content) (Node, error) {
	if err := n.checkWritable(path); err != nil {
		return Node{}, err
	}
	if path == "" {
		return Node{}, newError(BadPath, path, "empty; a value is set in its parent")
	}
	r, err := n.d.routeOf(path)
	if err != nil {
		return Node{}, err
	}
	n.d.work += int64(len(c.str)) / 4
	if err := n.d.Spend(len(c.str)); err != nil {
		return Node{}, err
	}
	id, err := n.d.visitContainer(n.id, r)
	if err != nil {
		return Node{}, err
	}
	id, err = n.d.putContent(id, r, c)
	return Node{n.d, id}, err
}

// equalsView reports whether a node already has the content. It returns false for shared content, because the caller
// has already compared such content within its budget.
func (c *content) equalsView(v View) bool {
	if c.shared || v.kind != c.kind {
		return false
	}
	switch c.kind {
	case Null:
		return true
	case Map, List:
		return v.Len() == 0
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
