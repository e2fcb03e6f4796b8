// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math"
	"unsafe"
)

// The roots of a Document, by node number.
const (
	ObjectRoot  = 1
	ContextRoot = 2 // read-only
	ConfigRoot  = 3 // read-only

	roots = 4 // with number 0, which is no place
)

// Unlimited nodes fit a 20 bit handle; unlimited bytes are more than an API server takes.
const (
	MaxNodes = 1 << 20
	MaxBytes = 1 << 30
	// maxDepth of nesting; encoding/json and API servers accept far more than any real object has.
	maxDepth = 512
)

type state uint8

const (
	view    state = iota // as in the parent's base
	set                  // written
	removed              // no longer there
)

type flags uint8

const (
	fBase     flags = 1 << iota // the content is base, with the children laid over it
	fInBase                     // the parent's base has this key
	fDirty                      // this place or one below was written
	fReadOnly                   // below the context or the configuration
	fReshaped                   // a list whose positions differ from its base
	fArena                      // str lies in the arena
	fOwned                      // key does not
)

// node is one visited place, with the value written to it, so that an edit is a visit and a few stores.
type node struct {
	base   any    // when fBase: the shared value
	str    string // else: a string's value
	key    string // in the parent map
	num    uint64 // else: bits of a bool, int, float
	parent int32
	next   int32 // sibling
	first  int32 // child of a map
	count  int32 // children of a map
	delta  int32 // entries of a map more (or fewer) than its base has
	list   int32 // 1 + position in Document.lists; 0 = untouched
	index  int32 // 1 + position in Document.indexes; 0 = none
	depth  uint16
	kind   Kind
	state  state
	flags  flags
}

// Document is a view of a shared object plus the edits made to it. Not for concurrent use; any number of Documents may
// view the same base at the same time, which none of them ever modifies.
type Document struct {
	nodes   []node
	arena   []byte             // keys and strings written
	lists   [][]int32          // slots of touched lists: base position, or ^node
	nlists  int                // in use
	indexes []map[string]int32 // children of maps with many
	nindex  int

	origin map[string]any // what Reset was given

	nodeLimit int
	byteLimit int
	written   int
	work      int64
	version   uint64
	workLimit int64

	tops   [roots]top
	topped bool      // one of them is in use
	keys   []string  // scratch of the JSON encoder
	path   []Segment // scratch of Edits

	paths   [pathSlots]pathSlot
	scratch route // the last path of which no slot knew
}

// New gives an empty Document; call Reset before use.
func New() *Document {
	d := &Document{nodes: make([]node, roots, 64)}
	d.Reset(nil)
	return d
}

// Sizes above which Reset gives memory back instead of keeping it for the next object.
const (
	keepNodes = 1 << 15
	keepArena = 1 << 16
	keepSlots = 1 << 12 // of a list
	keepKeys  = 1 << 12
)

// Reset drops all edits and limits and shows root, which the Document never modifies and others may read meanwhile.
// Nodes, Views and borrowed strings of before are no longer valid.
func (d *Document) Reset(root map[string]any) {
	d.origin = root
	d.drain()
	d.work, d.workLimit = 0, math.MaxInt64
	d.nodeLimit, d.byteLimit, d.written = MaxNodes, MaxBytes, 0
	d.show(ContextRoot, nil, fReadOnly)
	d.show(ConfigRoot, nil, fReadOnly)
	d.show(ObjectRoot, root, 0)
}

// drain drops the visited places and their new values.
func (d *Document) drain() {
	if len(d.nodes) > roots {
		d.recycle()
	}
	d.arena = d.arena[:0]
	d.version++
	if d.topped {
		d.forget()
	}
	if d.scratch.text != "" {
		clear(d.scratch.hops[:cap(d.scratch.hops)]) // they may lie in the memory of a guest
		d.scratch = route{hops: d.scratch.hops[:0]}
	}
}

// forget drops the maps that were read below the roots.
func (d *Document) forget() {
	for i := range d.tops {
		d.tops[i].fields = nil // its version is of before
	}
	d.topped = false
}

// show puts an object, or nothing, below a root that has no edits.
func (d *Document) show(root int, v map[string]any, f flags) {
	n := &d.nodes[root]
	switch {
	case v != nil:
		n.base, n.kind, n.flags = v, Map, f|fBase
	case n.kind != Absent:
		n.base, n.kind, n.flags = nil, Absent, f
	default:
		n.flags = f
	}
}

// recycle drops all references to the last object.
func (d *Document) recycle() {
	clear(d.nodes) // no reference into the last object survives
	d.nodes = d.nodes[:roots]
	if cap(d.nodes) > keepNodes {
		d.nodes = make([]node, roots, 64)
	}
	if cap(d.arena) > keepArena {
		d.arena = nil
	}
	for i := range d.nindex {
		if len(d.indexes[i]) > keepKeys { // a map keeps the room of the most that it ever had
			d.indexes[i] = make(map[string]int32, 4*indexFrom)
		} else {
			clear(d.indexes[i])
		}
	}
	for i := range d.nlists {
		if cap(d.lists[i]) > keepSlots {
			d.lists[i] = nil
		}
	}
	if cap(d.keys) > keepKeys {
		d.keys = nil
	}
	d.nlists, d.nindex = 0, 0
}

// Mount shows v below one of the read-only roots until the next Mount or Reset.
func (d *Document) Mount(root int, v map[string]any) {
	d.version++
	d.show(root, v, fReadOnly)
}

// Begin prepares a call of a plugin: it mounts the configuration, and sets the budget.
func (d *Document) Begin(config map[string]any, nodes, bytes int) {
	d.work = 0
	if config != nil || d.nodes[ConfigRoot].kind != Absent {
		d.Mount(ConfigRoot, config)
	}
	d.SetBudget(nodes, bytes)
}

// SetBudget limits the nodes visited and bytes written from now on.
func (d *Document) SetBudget(nodes, bytes int) {
	d.nodeLimit = min(len(d.nodes)+nodes, MaxNodes)
	d.byteLimit, d.written = bytes, 0
}

// Spend counts n bytes against the budget, for example for logs.
func (d *Document) Spend(n int) error {
	if n > d.byteLimit-d.written {
		return fail(TooManyBytes, "", "more bytes written than the limit allows")
	}
	d.written += n
	return nil
}

// RaiseByteLimit adds n bytes to the budget of bytes written.
func (d *Document) RaiseByteLimit(n int) { d.byteLimit += n }

// Version changes with every write and Reset.
func (d *Document) Version() uint64 { return d.version }

// The work of the steps that operations are made of, in units of about a nanosecond or a few: what a guest would need to do
// as much itself. They make no difference between what is remembered and what has to be found again.
const (
	workHop   = 16 // a segment of a path: a lookup in a map or list
	workEntry = 16 // an entry or element visited
	workValue = 64 // a value measured, compared or copied
)

// TakeWork returns and clears the work done since the last call: segments, entries, values and bytes that operations went
// through. The host charges it as fuel, so that a plugin cannot make others work for free.
func (d *Document) TakeWork() int64 {
	w := d.work
	d.work = 0
	return w
}

// SetWorkLimit ends an operation whose work, as TakeWork counts it, would pass n. It is checked in the loops of those
// operations whose work can be larger than the object and what was written.
func (d *Document) SetWorkLimit(n int64) { d.workLimit = n }

func (d *Document) toil(n int64) error {
	if d.work += n; d.work > d.workLimit {
		return fail(TooMuchWork, "", "more work than the limit allows")
	}
	return nil
}

// Root is the object's own node.
func (d *Document) Root() Node { return Node{d, ObjectRoot} }

// Nodes counts the places visited, the roots included.
func (d *Document) Nodes() int { return len(d.nodes) }

// Node gives the place with this number. A number that no node has gives the zero Node and false. Read-only places below
// floor, other than the roots, are refused too: they are what another plugin visited of its own configuration.
func (d *Document) Node(id, floor int) (Node, bool) {
	if uint(id) >= uint(len(d.nodes)) {
		return Node{}, false
	}
	if id < floor && id > ConfigRoot && d.nodes[id].flags&fReadOnly != 0 {
		return Node{}, false
	}
	return Node{d, int32(id)}, true
}

// Restore drops all edits, committed ones included, mounts and limits: Reset on the same object.
func (d *Document) Restore() { d.Reset(d.origin) }

// Commit makes the present value the base, so that Edits returns what is written from here on. The host commits between the
// plugins of a chain: each edit then has one author. Nodes and Views of before are no longer valid; mounts and limits stay.
func (d *Document) Commit() {
	if d.Edited() {
		d.rebase(d.Value())
	}
}

// Rollback drops the edits since the last Commit, or Reset. Nodes and Views of before are no longer valid.
func (d *Document) Rollback() {
	base, _ := d.nodes[ObjectRoot].base.(map[string]any)
	d.rebase(base)
}

func (d *Document) rebase(base map[string]any) {
	context, _ := d.nodes[ContextRoot].base.(map[string]any)
	config, _ := d.nodes[ConfigRoot].base.(map[string]any)
	d.drain()
	// A root that was visited holds on to its children: it is shown again.
	for root, v := range [roots]map[string]any{ObjectRoot: base, ContextRoot: context, ConfigRoot: config} {
		if root == 0 {
			continue
		}
		f := flags(fReadOnly)
		if root == ObjectRoot {
			f = 0
		}
		d.nodes[root] = node{}
		d.show(root, v, f)
	}
}

// Edited reports whether anything was written since the last Commit, or Reset.
func (d *Document) Edited() bool { return d.nodes[ObjectRoot].flags&fDirty != 0 }

// keep copies s to the arena: keys and strings come from a guest's memory, which changes.
func (d *Document) keep(s string) string {
	if s == "" {
		return ""
	}
	if cap(d.arena)-len(d.arena) < len(s) {
		// Strings given out before keep the old block alive; it is never written again.
		d.arena = make([]byte, 0, max(2*cap(d.arena), len(s), 1024))
	}
	off := len(d.arena)
	d.arena = append(d.arena, s...)
	return unsafe.String(&d.arena[off], len(s))
}

// add appends a node below parent, absent as yet. Pointers into d.nodes are stale afterwards.
func (d *Document) add(parent int32) (int32, error) {
	c := len(d.nodes)
	if c >= d.nodeLimit {
		return 0, fail(TooManyNodes, "", "more places of the object visited than the limit allows")
	}
	depth := d.nodes[parent].depth + 1
	if depth > maxDepth {
		return 0, fail(TooDeep, "", "nested too deeply")
	}
	if c < cap(d.nodes) {
		d.nodes = d.nodes[:c+1] // Reset left it zero
	} else {
		d.nodes = append(d.nodes, node{})
	}
	n := &d.nodes[c]
	n.parent, n.depth = parent, depth
	n.flags = d.nodes[parent].flags & fReadOnly
	return int32(c), nil
}
