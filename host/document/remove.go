// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strings"

const maxPathsBytes = 1 << 16

// pathWork is what one of many short paths costs, as TakeWork counts.
const pathWork = 16

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
		s := newScanner(path)
		count, err := n.d.removePath(n.id, &s)
		n.d.work += pathWork
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

// removePath is remove from the start of a path. Many lead nowhere, and begin like the one before.
func (d *Document) removePath(id int32, s *scanner) (int, error) {
	if m := d.top(id, s.path); m != nil {
		s.pos = int32(m.size)
		if found, err := has(m.fields, s); err != nil || !found {
			return 0, err
		}
		s.pos = 0
	}
	return d.remove(id, s)
}

func (d *Document) remove(id int32, s *scanner) (int, error) {
	if !s.next() {
		return 0, s.err()
	}
	switch d.nodes[id].kind {
	case Map:
		if s.wildcard() {
			return d.removeFields(id, s)
		}
		return d.removeField(id, s.text(), s)
	case List:
		return d.removeFromList(id, s)
	}
	return 0, s.finish()
}

// removeField removes what the rest of the path names below one entry, or the entry when there is no rest. Nothing is
// visited that does not lead to something to remove.
func (d *Document) removeField(id int32, key string, rest *scanner) (int, error) {
	if c := d.child(id, key); c != 0 {
		if rest.done() {
			return d.erase(id, c), nil
		}
		return d.remove(c, rest)
	}
	raw, ok := d.nodes[id].fields()[key]
	if !ok {
		return 0, rest.finish()
	}
	if rest.done() {
		return d.strike(id, key)
	}
	d.remember(id, raw, rest)
	at := rest.pos
	if found, err := has(raw, rest); err != nil || !found {
		return 0, err
	}
	rest.pos = at
	c, err := d.link(id, key, raw, true)
	if err != nil {
		return 0, err
	}
	return d.remove(c, rest)
}

// strike makes an entry of the base absent that was not visited before: most removals.
func (d *Document) strike(id int32, key string) (int, error) {
	c, err := d.link(id, key, nil, false)
	if err != nil {
		return 0, err
	}
	n := &d.nodes[c]
	n.state, n.author = removed, d.author
	n.flags |= fInBase | fDirty
	d.edit(id)
	d.nodes[id].delta--
	return 1, nil
}

// erase makes an entry of a map absent; it tells how many went.
func (d *Document) erase(id, c int32) int {
	if d.nodes[c].kind == Absent {
		return 0
	}
	d.edit(c)
	d.kill(c)
	d.nodes[c].author = d.author
	d.touch(id)
	d.nodes[id].delta--
	return 1
}

func (d *Document) removeFields(id int32, rest *scanner) (total int, err error) {
	start := len(d.keys)
	d.keys = d.appendKeys(d.keys, id)
	end, at := len(d.keys), rest.pos
	for i := start; i < end && err == nil; i++ {
		var n int
		rest.pos = at
		n, err = d.removeField(id, d.keys[i], rest)
		total += n
	}
	d.work += int64(end - start)
	clear(d.keys[start:])
	d.keys = d.keys[:start]
	return total, err
}

func (d *Document) removeFromList(id int32, s *scanner) (total int, err error) {
	if !s.wildcard() {
		return d.removeAtElem(id, index(s.text()), s)
	}
	d.work += int64(d.size(id))
	if s.done() {
		total = d.size(id)
		if total > 0 {
			err = d.write(id, content{kind: List})
		}
		return total, err
	}
	at := s.pos
	for i := 0; i < d.size(id) && err == nil; i++ {
		var n int
		s.pos = at
		n, err = d.removeAtElem(id, i, s)
		total += n
	}
	return total, err
}

func (d *Document) removeAtElem(id int32, i int, rest *scanner) (int, error) {
	v := d.element(id, i)
	if v.kind == Absent {
		return 0, rest.finish()
	}
	if rest.done() {
		d.removeElem(id, i)
		return 1, nil
	}
	c := v.id
	if c == 0 {
		at := rest.pos
		found, err := has(v.raw, rest)
		if err != nil || !found {
			return 0, err
		}
		rest.pos = at
		if c, err = d.visitElem(id, i); err != nil {
			return 0, err
		}
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

// has tells whether the rest of a path leads to anything below a plain value, and reads it on the way.
func has(v any, s *scanner) (bool, error) {
	for !s.done() {
		if !s.next() {
			return false, s.err()
		}
		switch c := v.(type) {
		case map[string]any:
			if s.wildcard() {
				// Rare: whether there is anything is found out by removing.
				return len(c) > 0, nil
			}
			e, ok := c[s.text()]
			if !ok {
				return false, s.finish()
			}
			v = e
		case []any:
			if s.wildcard() {
				return hasElem(c, s)
			}
			i := index(s.text())
			if uint(i) >= uint(len(c)) {
				return false, s.finish()
			}
			v = c[i]
		default:
			return false, s.finish()
		}
	}
	return true, nil
}

func hasElem(l []any, rest *scanner) (bool, error) {
	at := rest.pos
	for _, e := range l {
		rest.pos = at
		if found, err := has(e, rest); err != nil || found {
			return found, err
		}
	}
	return false, nil
}
