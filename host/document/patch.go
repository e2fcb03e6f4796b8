// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"slices"
	"strconv"
	"strings"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// Patch applies one operation of a JSON Patch (RFC 6902) to the object. The operation is decoded JSON. The value in
// the operation is shared with the Document from now on and must not be modified. Unchanged parts stay shared with
// the base, and writing an equal value is not an edit.
//
// The returned error names the operation and its path. After an error, the Document may be partly changed, so the
// caller must roll it back.
func (d *Document) Patch(operation any) error {
	var o patchOperation
	if err := o.parseOperation(operation); err != nil {
		return err
	}
	d.work += workValue + int64(len(o.path.text)+len(o.from.text))/2 + workHop*int64(len(o.path.keys)+len(o.from.keys))
	switch o.op {
	case "add":
		return o.addValue(d, o.value)
	case "remove":
		return o.removeValue(d, &o.path)
	case "replace":
		return o.replaceValue(d)
	case "move":
		return o.moveValue(d)
	case "copy":
		return o.copyValue(d)
	default:
		return o.testValue(d)
	}
}

// patchOperation is one operation whose members were checked.
type patchOperation struct {
	op         string
	path, from pointer
	value      any
}

// pointer is a JSON Pointer (RFC 6901).
type pointer struct {
	text string
	keys []string
}

// patchMembers maps each operation to the member that it needs in addition to op and path.
var patchMembers = map[string]string{"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": ""}

func (o *patchOperation) parseOperation(operation any) error {
	members, ok := operation.(map[string]any)
	if !ok {
		return wrongKind("", kindOf(operation), `an object with "op" and "path"`)
	}
	var err error
	if o.op, err = textMember(members, "op"); err != nil {
		return err
	}
	needs, ok := patchMembers[o.op]
	if !ok {
		return newError(BadValue, "", `"op" is `+quotePath(o.op)+", not add, remove, replace, move, copy or test")
	}
	if o.path.text, err = textMember(members, "path"); err != nil {
		return newError(BadPath, "", o.op+": "+err.Error())
	}
	if err = o.path.parsePointer(); err != nil {
		return o.operationError(BadPath, err.Error())
	}
	switch needs {
	case "value":
		if o.value, ok = members["value"]; !ok {
			return o.operationError(BadValue, `"value" is missing`)
		}
	case "from":
		if o.from.text, err = textMember(members, "from"); err == nil {
			err = o.from.parsePointer()
		}
		if err != nil {
			return o.operationError(BadPath, err.Error())
		}
	}
	return nil
}

func textMember(members map[string]any, name string) (string, error) {
	v, ok := members[name]
	if !ok {
		return "", newError(BadValue, "", strconv.Quote(name)+" is missing")
	}
	text, ok := v.(string)
	if !ok {
		return "", newError(BadKind, "", strconv.Quote(name)+" is "+kindOf(v).String()+", not string")
	}
	return text, nil
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

func (p *pointer) parsePointer() error {
	if p.text == "" {
		return nil
	}
	if p.text[0] != '/' {
		return newError(BadPath, "", quotePath(p.text)+" is no JSON Pointer: it does not begin with /")
	}
	p.keys = strings.Split(p.text[1:], "/")
	for i, k := range p.keys {
		if !strings.Contains(k, "~") {
			continue
		}
		if strings.Count(k, "~") != strings.Count(k, "~0")+strings.Count(k, "~1") {
			return newError(BadPath, "", quotePath(p.text)+" is no JSON Pointer: ~ is written ~0")
		}
		p.keys[i] = unescapePointer.Replace(k)
	}
	return nil
}

// upTo returns the text of the pointer before the n-th key.
func (p *pointer) upTo(n int) string {
	end := 0
	for range n {
		end += 1 + strings.IndexByte(p.text[end+1:]+"/", '/')
	}
	return quotePath(p.text[:end])
}

// operationError returns an error that names the operation and its path.
func (o *patchOperation) operationError(code Code, detail string) error {
	return newError(code, "", o.op+" "+quotePath(o.path.text)+": "+detail)
}

// wrapError adds the operation to an error, unless the error concerns a limit.
func (o *patchOperation) wrapError(err error) error {
	if e, ok := err.(*Error); ok && e.Code < TooManyNodes {
		return o.operationError(e.Code, e.Detail)
	}
	return err
}

// listIndex parses a list position in the format of RFC 6901, which does not allow leading zeros.
func listIndex(key string) (int, bool) {
	i := fieldpath.ParseIndex(key)
	return i, i >= 0 && (len(key) == 1 || key[0] != '0')
}

// missingError returns the error for a pointer without a value: the n-th key does not exist in v.
func (o *patchOperation) missingError(p *pointer, n int, v View) error {
	switch v.kind {
	case Map:
		return o.operationError(Gone, "nothing is at "+p.upTo(n+1))
	case List:
		if _, ok := listIndex(p.keys[n]); !ok {
			return o.operationError(BadIndex, quotePath(p.keys[n])+" is no element of the list "+p.upTo(n))
		}
		return o.operationError(BadIndex, "the list "+p.upTo(n)+" has "+strconv.Itoa(v.Len())+" elements")
	}
	return o.operationError(BadKind, p.upTo(n)+" is "+v.kind.String()+", not a map or list")
}

// findValue returns the value at a pointer, or an error if there is none.
func (o *patchOperation) findValue(d *Document, p *pointer) (View, error) {
	v := d.viewOf(ObjectRoot)
	for n, key := range p.keys {
		next := View{}
		if v.kind == Map {
			next = v.Field(key)
		} else if i, ok := listIndex(key); ok {
			next = v.Index(i)
		}
		if next.kind == Absent {
			return View{}, o.missingError(p, n, v)
		}
		v = next
	}
	return v, nil
}

// findNode returns the node for the first n keys of a pointer, or an error if there is none.
func (o *patchOperation) findNode(d *Document, p *pointer, n int) (int32, error) {
	id := int32(ObjectRoot)
	for n, key := range p.keys[:n] {
		next, err := int32(0), error(nil)
		if v := d.viewOf(id); v.kind == Map {
			next, err = d.visitField(id, fieldpath.Name{Owned: true, Text: key})
		} else if i, ok := listIndex(key); ok && v.kind == List {
			next, err = d.visitElem(id, i)
		}
		if err != nil {
			return 0, o.wrapError(err)
		}
		if next == 0 {
			return 0, o.missingError(p, n, d.viewOf(id))
		}
		id = next
	}
	return id, nil
}

// addValue sets v at the path of the operation. In a map, it adds or replaces an entry. In a list, it inserts an
// element before the existing element at this position.
func (o *patchOperation) addValue(d *Document, v any) error {
	last := len(o.path.keys) - 1
	if last < 0 {
		return o.wrapError(d.Root().Assign("", v))
	}
	if err := d.spendValue(v); err != nil {
		return o.wrapError(err)
	}
	id, err := o.findNode(d, &o.path, last)
	if err != nil {
		return err
	}
	key, parent := o.path.keys[last], d.viewOf(id)
	switch parent.kind {
	case Map:
		f := frame{d: d, id: id}
		if was := parent.Field(key); was.kind != Absent {
			return o.wrapError((&frame{d: d, parent: &f, key: key, pos: -1, id: was.id}).assignValue(was, v))
		}
		return o.wrapError(f.addField(key, v))
	case List:
		i, ok := listIndex(key)
		if key == "-" {
			i, ok = parent.Len(), true
		}
		if ok && i <= parent.Len() {
			_, err := d.insertElement(id, i, contentOf(v))
			return o.wrapError(err)
		}
	}
	return o.missingError(&o.path, last, parent)
}

func (o *patchOperation) removeValue(d *Document, p *pointer) error {
	last := len(p.keys) - 1
	if last < 0 {
		return o.operationError(BadPath, "the object as a whole is neither removed nor moved")
	}
	id, err := o.findNode(d, p, last)
	if err != nil {
		return err
	}
	key, parent := p.keys[last], d.viewOf(id)
	switch parent.kind {
	case Map:
		if n, err := d.removeEntry(id, fieldpath.Name{Owned: true, Text: key}); err != nil || n > 0 {
			return o.wrapError(err)
		}
	case List:
		if i, ok := listIndex(key); ok && i < parent.Len() {
			d.removeElem(id, i)
			return nil
		}
	}
	return o.missingError(p, last, parent)
}

func (o *patchOperation) replaceValue(d *Document) error {
	if len(o.path.keys) == 0 {
		return o.addValue(d, o.value)
	}
	if err := d.spendValue(o.value); err != nil {
		return o.wrapError(err)
	}
	id, err := o.findNode(d, &o.path, len(o.path.keys))
	if err != nil {
		return err
	}
	return o.wrapError((&frame{d: d, id: id}).assignValue(d.viewOf(id), o.value))
}

func (o *patchOperation) copyValue(d *Document) error {
	v, err := o.findValue(d, &o.from)
	if err != nil {
		return err
	}
	return o.addValue(d, v.Value())
}

func (o *patchOperation) moveValue(d *Document) error {
	v, err := o.findValue(d, &o.from)
	if err != nil || o.from.text == o.path.text {
		return err
	}
	if strings.HasPrefix(o.path.text, o.from.text+"/") {
		return o.operationError(BadPath, "a value does not move into itself")
	}
	value := v.Value()
	if err := o.removeValue(d, &o.from); err != nil {
		return err
	}
	return o.addValue(d, value)
}

func (o *patchOperation) testValue(d *Document) error {
	v, err := o.findValue(d, &o.path)
	if err != nil {
		return err
	}
	if _, err := d.measureValue(o.value, 0); err != nil {
		return o.wrapError(err)
	}
	if !equalViews(v, rawView(o.value)) {
		return o.operationError(BadValue, "the value there is another one")
	}
	return nil
}

// insertElement inserts a new element before position i of a list. i may equal the length of the list.
func (d *Document) insertElement(id int32, i int, c content) (int32, error) {
	d.markDirty(id)
	d.logRewrite(id)
	at, err := d.addNode(id)
	if err != nil {
		return 0, err
	}
	l := d.listSlots(id)
	d.work += int64(len(l)-i) / 16
	n := &d.nodes[id]
	d.lists[n.list-1] = slices.Insert(l, i, ^at)
	n.flags |= fReshaped
	return at, d.writeNode(at, c)
}
