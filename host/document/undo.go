// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// undo contains the states of nodes at the last Commit. Before the first Commit it is empty, because all nodes except
// the root were created after Reset.
type undo struct {
	mark   int32 // nodes with smaller numbers existed at the last Commit
	nlists int   // Document.nlists at the last Commit
	nindex int   // Document.nindex at the last Commit
	log    []logged
	slots  []int32 // slots of the logged lists
}

// logged is the state of a node before its first change since the last Commit. The first visit of one of its entries
// or elements also counts as a change.
type logged struct {
	was       node
	id        int32
	from, to  int32 // range in undo.slots
	rewritten bool  // the node's own value or the order of its list has changed, not only values below it
}

// mostKept is the maximum number of nodes that Commit keeps. If there are more, Commit builds the value instead, so
// that later plugins do not have to deal with the nodes that earlier plugins visited. With so many nodes, building the
// value is comparatively cheap.
const mostKept = 1 << 10

// Commit makes the current value the base, so that Edits returns only later writes. The host calls Commit between the
// plugins of a chain, so that each edit has one author. Earlier Nodes and Views are no longer valid. Mounts and
// limits stay.
func (d *Document) Commit() {
	switch edited := d.Edited(); {
	case edited && len(d.nodes) > mostKept:
		d.setBase(d.Value())
	case edited:
		d.keepNodes()
	case len(d.nodes) > mostKept:
		d.Rollback()
	}
}

// keepNodes keeps all nodes for the next plugin, and begins a new log.
func (d *Document) keepNodes() {
	for i := range d.undo.log {
		n := &d.nodes[d.undo.log[i].id]
		n.log = 0
		n.flags &^= fEdited
	}
	d.dropLog()
	d.undo.mark, d.undo.nlists, d.undo.nindex = int32(len(d.nodes)), d.nlists, d.nindex
}

func (d *Document) dropLog() {
	u := &d.undo
	clear(u.log)
	u.log, u.slots = u.log[:0], u.slots[:0]
}

// forgetUndo removes the log, so that the Document is in the same state as before the first Commit.
func (d *Document) forgetUndo() {
	d.dropLog()
	u := &d.undo
	if cap(u.log) > mostKept {
		u.log = nil
	}
	if cap(u.slots) > keepSlots {
		u.slots = nil
	}
	u.mark = 0
}

// logNode saves a node's state as of the last Commit to the undo log, before the node is first changed. It does nothing
// if the node is already saved.
func (d *Document) logNode(id int32) {
	n, u := &d.nodes[id], &d.undo
	if n.log != 0 {
		return
	}
	from := int32(len(u.slots))
	if n.list != 0 {
		u.slots = append(u.slots, d.lists[n.list-1]...)
		d.work += int64(len(u.slots)-int(from)) / 16
	}
	u.log = append(u.log, logged{was: *n, id: id, from: from, to: int32(len(u.slots))})
	n.log = int32(len(u.log))
}

// logRewrite saves a node's state to the undo log before its own value, or the positions of its list, change.
func (d *Document) logRewrite(id int32) {
	if id < d.undo.mark {
		d.logNode(id)
		d.undo.log[d.nodes[id].log-1].rewritten = true
	}
}

// Rollback removes the edits since the last Commit or Reset. Earlier Nodes and Views are no longer valid.
func (d *Document) Rollback() {
	u := &d.undo
	if u.mark == 0 {
		base, _ := d.nodes[ObjectRoot].base.(map[string]any)
		d.setBase(base)
		return
	}
	for i := range u.log {
		e := &u.log[i]
		d.nodes[e.id] = e.was
		if e.was.list != 0 {
			d.lists[e.was.list-1] = append(d.lists[e.was.list-1][:0], u.slots[e.from:e.to]...)
		}
	}
	d.dropNodes()
	d.dropLog()
	d.version++
	d.forgetTops()
}

// dropNodes removes the nodes that were created after the last Commit.
func (d *Document) dropNodes() {
	u := &d.undo
	for i := int(u.mark); i < len(d.nodes); i++ {
		n := &d.nodes[i]
		if n.parent >= u.mark {
			continue
		}
		if p := &d.nodes[n.parent]; p.index != 0 && d.indexes[p.index-1][n.key] == int32(i) {
			delete(d.indexes[p.index-1], n.key)
		}
	}
	d.recycleTables(u.nlists, u.nindex)
	clear(d.nodes[u.mark:])
	d.nodes = d.nodes[:u.mark]
}

// Edited reports whether the object was written since the last Commit or Reset.
func (d *Document) Edited() bool { return d.isEdited(ObjectRoot) }

// isEdited reports whether a node, or a node below it, was written since the last Commit or Reset.
func (d *Document) isEdited(id int32) bool {
	if id < d.undo.mark {
		return d.nodes[id].flags&fEdited != 0
	}
	return d.nodes[id].flags&fDirty != 0
}
