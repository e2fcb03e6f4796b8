// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"maps"
	"math"
	"strings"
)

// Value returns the object with its edits applied. Maps and lists on the path to an edit are new. All other values
// are shared with the base, so callers must copy a map below the first level before they modify it. The result stays
// valid after Reset.
func (d *Document) Value() map[string]any {
	m, _ := d.valueOf(ObjectRoot).(map[string]any)
	return m
}

// Value returns the plain value of the node; see Document.Value.
func (n Node) Value() any { return n.View().Value() }

// Value returns the plain value. Unchanged parts are shared with the base. The result is nil for an absent value.
func (v View) Value() any {
	if v.id == 0 {
		return v.raw
	}
	if v.id < 0 {
		return v.d.pastValue(-v.id)
	}
	return v.d.valueOf(v.id)
}

func (d *Document) valueOf(id int32) any {
	n := &d.nodes[id]
	if n.flags&(fBase|fDirty) == fBase || n.flags&fBase != 0 && d.isUntouched(n) {
		return n.base
	}
	switch n.kind {
	case Map:
		return d.mapValue(id)
	case List:
		return d.listValue(id)
	case String:
		return strings.Clone(n.str)
	case Int:
		return int64(n.num)
	case Float:
		return math.Float64frombits(n.num)
	case Bool:
		return n.num != 0
	}
	return nil
}

// isUntouched reports whether a shared value that Copy or Assign has written was not edited since.
func (d *Document) isUntouched(n *node) bool { return n.first == 0 && n.list == 0 }

func (d *Document) mapValue(id int32) any {
	n := &d.nodes[id]
	m := maps.Clone(n.baseFields())
	d.work += workValue * int64(len(m)+int(n.count))
	if m == nil {
		m = make(map[string]any, n.count)
	}
	for c := n.first; c != 0; c = d.nodes[c].next {
		switch ch := &d.nodes[c]; {
		case ch.state == removed:
			delete(m, ch.key)
		case ch.flags&fDirty != 0:
			key := ch.key
			// The key must be cloned, because it is in the arena, and the map would keep a reference to the arena.
			if ch.flags&fOwned == 0 {
				key = strings.Clone(key)
			}
			m[key] = d.valueOf(c)
		}
	}
	return m
}

func (d *Document) listValue(id int32) any {
	n := &d.nodes[id]
	if n.list == 0 {
		return []any{}
	}
	slots, base := d.lists[n.list-1], n.baseElems()
	l := make([]any, len(slots))
	d.work += workEntry * int64(len(l))
	for i, s := range slots {
		if s < 0 {
			l[i] = d.valueOf(^s)
		} else {
			l[i] = base[s]
		}
	}
	return l
}
