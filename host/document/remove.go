// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strings"

const maxPathsBytes = 1 << 16

// Remove removes what is at each of the paths, which are separated by newlines, and tells how many values went. In these
// paths `*` stands for every element or value: `spec.ports.*.nodePort`. A path that leads nowhere, through a scalar for
// instance, removes nothing.
func (n Node) Remove(paths string) (int, error) {
	if n.ReadOnly() {
		return 0, readOnly(paths)
	}
	if len(paths) > maxPathsBytes {
		return 0, fail(BadPath, paths, "more than 64 KiB of paths")
	}
	total := 0
	for more := true; more; {
		var path string
		path, paths, more = strings.Cut(paths, "\n")
		if err := checkPath(path); err != nil {
			return total, err
		}
		if path == "" {
			return total, fail(BadPath, path, "empty; a value is removed from its parent")
		}
		if n.id == 0 {
			continue
		}
		count, err := n.d.remove(n.id, newScanner(path))
		total += count
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// RemoveElem removes one element of the list n; later ones move up.
func (n Node) RemoveElem(i int) error {
	if err := n.writable(""); err != nil {
		return err
	}
	if k := n.Kind(); k != List {
		return wrongKind("", k, "a list")
	}
	if uint(i) >= uint(n.d.size(n.id)) {
		return fail(BadIndex, "", "past the end of the list")
	}
	n.d.removeElem(n.id, i)
	return nil
}

func (d *Document) remove(id int32, s scanner) (int, error) {
	seg, err := s.next()
	if err != nil {
		return 0, err
	}
	switch d.nodes[id].kind {
	case Map:
		if seg.wildcard() {
			return d.removeFields(id, s)
		}
		return d.removeField(id, seg.text, d.lookup(id, seg.text), s)
	case List:
		return d.removeFromList(id, seg, s)
	}
	return 0, nil
}

// removeField removes what the rest of the path names below one entry, or the entry when there is no rest. Nothing is
// visited that does not lead to something to remove.
func (d *Document) removeField(id int32, key string, v View, rest scanner) (int, error) {
	if v.kind == Absent {
		return 0, nil
	}
	if !rest.done() {
		if found, err := d.has(v, rest); err != nil || !found {
			return 0, err
		}
	}
	c, err := d.visitField(id, key)
	if err != nil {
		return 0, err
	}
	if !rest.done() {
		return d.remove(c, rest)
	}
	d.edit(c)
	d.kill(c)
	d.nodes[c].author = d.author
	d.touch(id)
	d.nodes[id].delta--
	return 1, nil
}

func (d *Document) removeFields(id int32, rest scanner) (total int, err error) {
	start := len(d.keys)
	d.keys = d.appendKeys(d.keys, id)
	end := len(d.keys)
	for i := start; i < end && err == nil; i++ {
		var n int
		key := d.keys[i]
		n, err = d.removeField(id, key, d.lookup(id, key), rest)
		total += n
	}
	d.work += int64(end - start)
	clear(d.keys[start:])
	d.keys = d.keys[:start]
	return total, err
}

func (d *Document) removeFromList(id int32, seg segment, rest scanner) (total int, err error) {
	if !seg.wildcard() {
		return d.removeAtElem(id, index(seg.text), rest)
	}
	d.work += int64(d.size(id))
	if rest.done() {
		total = d.size(id)
		if total > 0 {
			err = d.write(id, content{kind: List})
		}
		return total, err
	}
	for i := 0; i < d.size(id) && err == nil; i++ {
		var n int
		n, err = d.removeAtElem(id, i, rest)
		total += n
	}
	return total, err
}

func (d *Document) removeAtElem(id int32, i int, rest scanner) (int, error) {
	v := d.element(id, i)
	if v.kind == Absent {
		return 0, nil
	}
	if rest.done() {
		d.removeElem(id, i)
		return 1, nil
	}
	if found, err := d.has(v, rest); err != nil || !found {
		return 0, err
	}
	c, err := d.visitElem(id, i)
	if err != nil {
		return 0, err
	}
	return d.remove(c, rest)
}

// removeElem takes the element out of the slots.
func (d *Document) removeElem(id int32, i int) {
	d.edit(id)
	l := d.slots(id)
	if l[i] < 0 {
		d.kill(^l[i])
	}
	d.work += int64(len(l)-i) / 16
	n := &d.nodes[id]
	d.lists[n.list-1] = append(l[:i], l[i+1:]...)
	n.flags |= fReshaped
	n.author = d.author
}

// has tells whether the rest of a path leads to anything.
func (d *Document) has(v View, s scanner) (bool, error) {
	seg, err := s.next()
	if err != nil {
		return false, err
	}
	switch {
	case v.kind == List && seg.wildcard():
		return d.hasElem(v, s)
	case v.kind == Map && seg.wildcard():
		// Rare: whether there is anything is found out by removing.
		return v.Len() > 0, nil
	case v.kind == Map:
		v = v.Field(seg.text)
	default:
		v = v.Index(index(seg.text))
	}
	if v.kind == Absent || s.done() {
		return v.kind != Absent, nil
	}
	return d.has(v, s)
}

func (d *Document) hasElem(v View, rest scanner) (bool, error) {
	n := v.Len()
	if rest.done() {
		return n > 0, nil
	}
	for i := range n {
		d.work++
		if found, err := d.has(v.Index(i), rest); err != nil || found {
			return found, err
		}
	}
	return false, nil
}
