// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// Mark is a state to roll back to.
type Mark struct {
	nodes, journal, nlists int
}

// saved is a node as it was when the Mark was made.
type saved struct {
	id    int32
	n     node
	slots []int32
}

// Checkpoint marks the present state. From the first mark on, until the next Reset, changed places are saved.
func (d *Document) Checkpoint() Mark {
	d.epoch++
	return Mark{nodes: len(d.nodes), journal: len(d.journal), nlists: d.nlists}
}

// touch saves a place before its first change after a Mark.
func (d *Document) touch(id int32) {
	n := &d.nodes[id]
	if n.epoch == d.epoch {
		return
	}
	s := saved{id: id, n: *n}
	if n.list != 0 {
		s.slots = append([]int32(nil), d.lists[n.list-1]...)
	}
	d.journal = append(d.journal, s)
	n.epoch = d.epoch
}

// Rollback drops every edit made since the mark, and marks made after it. The mark itself stays good.
func (d *Document) Rollback(m Mark) {
	for i := len(d.journal) - 1; i >= m.journal; i-- {
		s := &d.journal[i]
		d.nodes[s.id] = s.n
		if s.n.list != 0 {
			l := &d.lists[s.n.list-1]
			*l = append((*l)[:0], s.slots...)
		}
	}
	clear(d.journal[m.journal:])
	clear(d.nodes[m.nodes:])
	d.journal, d.nodes, d.nlists = d.journal[:m.journal], d.nodes[:m.nodes], m.nlists
	d.dropIndexes()
	d.version++
	// What changes next must be saved again.
	d.epoch++
}

// dropIndexes forgets the indexes, which name places that are gone; those still needed are built again.
func (d *Document) dropIndexes() {
	for i := range d.nodes {
		d.nodes[i].index = 0
	}
	for i := range d.nindex {
		clear(d.indexes[i])
	}
	d.nindex = 0
	for i := range d.nodes {
		if d.nodes[i].count > indexFrom {
			d.buildIndex(int32(i))
		}
	}
}
