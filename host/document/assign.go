// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"
	"unicode/utf8"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// Assign makes the value at path equal to v with as few edits as possible. Maps are compared entry by entry, and
// lists of equal length element by element, so that unchanged parts stay shared and do not count as edits. The empty
// path is the node itself. The kind of a root cannot change. v is shared with the document from now on and must not
// be modified.
func (n Node) Assign(path string, v any) error {
	if err := n.checkWritable(path); err != nil {
		return err
	}
	if err := n.d.spendValue(v); err != nil {
		return err
	}
	f := frame{d: n.d, id: n.id}
	if path != "" {
		present, err := n.presentValue(path)
		if err != nil {
			return err
		}
		if !present.Exists() {
			_, err := n.setContent(path, contentOf(v))
			return err
		}
		place, err := n.Get(path)
		if err != nil {
			return err
		}
		f.id = place.id
	}
	if f.id == ObjectRoot && kindOf(v) != Map {
		return wrongKind(path, kindOf(v), "a map, which an object is")
	}
	return f.assignValue(n.d.viewOf(f.id), v)
}

// Copy writes the value src to path. The value is shared, not copied. src may be below any root.
func (n Node) Copy(path string, src View) error {
	if err := n.checkWritable(path); err != nil {
		return err
	}
	if src.kind == Absent {
		return newError(Gone, path, "there is nothing to copy")
	}
	v := src.Value()
	if err := n.d.spendValue(v); err != nil {
		return err
	}
	if present, err := n.presentValue(path); err != nil || present.kind == src.kind && equalViews(present, rawView(v)) {
		return err
	}
	_, err := n.setContent(path, contentOf(v))
	return err
}

// presentValue returns the value that a write to path would replace. The returned value is absent if the write would
// append to a list.
func (n Node) presentValue(path string) (View, error) {
	v, err := n.At(path)
	if e, ok := err.(*Error); ok && e.Code == BadIndex && strings.HasSuffix(path, "-") {
		return View{}, nil
	}
	return v, err
}

func contentOf(v any) content { return content{kind: kindOf(v), base: v, shared: true} }

// spendValue counts the size of a written value against the budget.
func (d *Document) spendValue(v any) error {
	size, err := d.measureValue(v, 0)
	if err != nil {
		return err
	}
	return d.Spend(size)
}

// measureValue estimates the size of a value in bytes. It returns an error for values that an object cannot contain. A
// shared subtree counts each time it occurs. If it counted once, a plugin could double the size of a value with every
// Copy.
func (d *Document) measureValue(v any, depth int) (int, error) {
	if depth > maxDepth {
		return 0, newError(TooDeep, "", "nested too deeply")
	}
	const overhead = 8
	total := overhead
	d.work += workValue
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return 0, newError(BadValue, "", "a string is not valid UTF-8")
		}
		d.work += int64(len(v)) / 4
		total += len(v)
	case map[string]any:
		for k, e := range v {
			n, err := d.measureValue(e, depth+1)
			if total += n + len(k); err != nil || total > d.byteLimit {
				return total, err
			}
		}
	case []any:
		for _, e := range v {
			n, err := d.measureValue(e, depth+1)
			if total += n; err != nil || total > d.byteLimit {
				return total, err
			}
		}
	default:
		if kindOf(v) == Absent {
			return 0, newError(BadValue, "", "a value of a Go type that JSON lacks")
		}
	}
	return total, nil
}

// frame is one step on the path of Assign. A node is created for it only if a value below it differs.
type frame struct {
	d      *Document
	parent *frame
	key    string
	pos    int // position in a list; -1 in a map
	id     int32
}

func (f *frame) visitNode() (int32, error) {
	if f.id != 0 {
		return f.id, nil
	}
	p, err := f.parent.visitNode()
	if err != nil {
		return 0, err
	}
	if f.pos >= 0 {
		f.id, err = f.d.visitElem(p, f.pos)
	} else {
		f.id, err = f.d.visitField(p, fieldpath.Name{Owned: true, Text: f.key})
	}
	return f.id, err
}

func (f *frame) assignValue(present View, v any) error {
	switch v := v.(type) {
	case map[string]any:
		if present.kind == Map {
			return f.assignMap(present, v)
		}
	case []any:
		if present.kind == List && present.Len() == len(v) {
			return f.assignList(present, v)
		}
	default:
		if equalViews(present, rawView(v)) {
			return nil
		}
	}
	id, err := f.visitNode()
	if err != nil {
		return err
	}
	return f.d.writeNode(id, contentOf(v))
}

func (f *frame) assignMap(present View, v map[string]any) error {
	for k, e := range v {
		var err error
		if was := present.Field(k); was.kind == Absent {
			err = f.addField(k, e)
		} else {
			err = (&frame{d: f.d, parent: f, key: k, pos: -1, id: was.id}).assignValue(was, e)
		}
		if err != nil {
			return err
		}
	}
	if f.id != 0 {
		present = f.d.viewOf(f.id)
	}
	if present.Len() == len(v) {
		return nil
	}
	keys := present.Keys(nil)
	if err := f.d.addWork(SortWork(len(keys), 0)); err != nil {
		return err
	}
	for _, k := range keys {
		if _, ok := v[k]; !ok {
			id, err := f.visitNode()
			if err != nil {
				return err
			}
			if _, err = f.d.removeEntry(id, fieldpath.Name{Text: k}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *frame) addField(key string, v any) error {
	id, err := f.visitNode()
	if err != nil {
		return err
	}
	_, err = f.d.putField(id, fieldpath.Name{Owned: true, Text: key}, contentOf(v), "")
	return err
}

func (f *frame) assignList(present View, v []any) error {
	for i, e := range v {
		was := present.Index(i)
		if err := (&frame{d: f.d, parent: f, pos: i, id: was.id}).assignValue(was, e); err != nil {
			return err
		}
	}
	return nil
}
