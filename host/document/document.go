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

	// Number 0 is counted but is no node.
	roots = 4
)

// MaxNodes fits a 20-bit handle; MaxBytes is more than an API server accepts.
const (
	MaxNodes = 1 << 20
	MaxBytes = 1 << 30
	// maxDepth limits nesting. It is far above the nesting of real objects, and below the limits of encoding/json and
	// API servers.
	maxDepth = 512
)

type state uint8

const (
	view    state = iota // unchanged from the parent's base
	set                  // written
	removed              // no longer present
)

type flags uint8

const (
	fBase     flags = 1 << iota // the content is base with the children on top
	fInBase                     // the parent's base has this key
	fDirty                      // this node or one below it was written
	fReadOnly                   // below the context or the configuration
	fReshaped                   // a list whose positions differ from its base
	fArena                      // str is in the arena
	fOwned                      // key is not in the arena
)

// node is one visited node with the value written to it, so that an edit is a visit and a few stores.
type node struct {
	base   any    // shared value, if fBase
	str    string // string value, otherwise
	key    string // key in the parent map
	num    uint64 // bits of a bool, int or float, otherwise
	parent int32
	next   int32 // sibling
	first  int32 // first child of a map
	count  int32 // number of children of a map
	delta  int32 // entries of a map minus the entries of its base
	list   int32 // 1 + position in Document.lists; 0 = untouched
	index  int32 // 1 + position in Document.indexes; 0 = none
	depth  uint16
	kind   Kind
	state  state
	flags  flags
}

// Document is a view of a shared object and the edits made to it. It is not safe for concurrent use, but any number of
// Documents may view the same base at the same time: none of them modifies it.
type Document struct {
	nodes   []node
	arena   []byte             // written keys and strings
	lists   [][]int32          // slots of touched lists: position in the base, or ^node
	nlists  int                // number of lists in use
	indexes []map[string]int32 // children of maps with many of them
	nindex  int

	origin map[string]any // argument of Reset

	nodeLimit int
	byteLimit int
	written   int
	work      int64
	version   uint64
	workLimit int64

	tops   [roots]top
	topped bool      // whether one of tops is in use
	keys   []string  // scratch of the JSON encoder
	path   []Segment // scratch of Edits

	paths   [pathSlots]pathSlot
	scratch route // last path without a slot
}

// New returns an empty Document. Call Reset before use.
func New() *Document {
	d := &Document{nodes: make([]node, roots, 64)}
	d.Reset(nil)
	return d
}

// Sizes above which Reset frees memory instead of keeping it for the next object.
const (
	keepNodes = 1 << 15
	keepArena = 1 << 16
	keepSlots = 1 << 12 // slots of a list
	keepKeys  = 1 << 12
)

// Reset drops all edits and limits and makes root the base. The Document never modifies it, and others may read it
// meanwhile. Earlier Nodes, Views and borrowed strings are no longer valid.
func (d *Document) Reset(root map[string]any) {
	d.origin = root
	d.dropVisited()
	d.work, d.workLimit = 0, math.MaxInt64
	d.nodeLimit, d.byteLimit, d.written = MaxNodes, MaxBytes, 0
	d.setRoot(ContextRoot, nil, fReadOnly)
	d.setRoot(ConfigRoot, nil, fReadOnly)
	d.setRoot(ObjectRoot, root, 0)
}

// dropVisited drops the visited nodes and the values written to them.
func (d *Document) dropVisited() {
	if len(d.nodes) > roots {
		d.recycleNodes()
	}
	d.arena = d.arena[:0]
	d.version++
	if d.topped {
		d.forgetTops()
	}
	if d.scratch.text != "" {
		// The hops may be in the memory of a guest.
		clear(d.scratch.hops[:cap(d.scratch.hops)])
		d.scratch = route{hops: d.scratch.hops[:0]}
	}
}

// forgetTops drops the remembered maps below the roots.
func (d *Document) forgetTops() {
	for i := range d.tops {
		// The entry has an old version.
		d.tops[i].fields = nil
	}
	d.topped = false
}

// setRoot makes an object, or no value, the content of a root that has no edits.
func (d *Document) setRoot(root int, v map[string]any, f flags) {
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

// recycleNodes drops all references to the last object.
func (d *Document) recycleNodes() {
	// No reference to the last object survives.
	clear(d.nodes)
	d.nodes = d.nodes[:roots]
	if cap(d.nodes) > keepNodes {
		d.nodes = make([]node, roots, 64)
	}
	if cap(d.arena) > keepArena {
		d.arena = nil
	}
	for i := range d.nindex {
		// A map keeps the memory of its largest size.
		if len(d.indexes[i]) > keepKeys {
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
	d.setRoot(root, v, fReadOnly)
}

// Begin prepares the call of a plugin: it mounts the configuration and sets the budget.
func (d *Document) Begin(config map[string]any, nodes, bytes int) {
	d.work = 0
	if config != nil || d.nodes[ConfigRoot].kind != Absent {
		d.Mount(ConfigRoot, config)
	}
	d.SetBudget(nodes, bytes)
}

// SetBudget limits the nodes visited and the bytes written from now on.
func (d *Document) SetBudget(nodes, bytes int) {
	d.nodeLimit = min(len(d.nodes)+nodes, MaxNodes)
	d.byteLimit, d.written = bytes, 0
}

// Spend counts n bytes against the budget, for example for logs.
func (d *Document) Spend(n int) error {
	if n > d.byteLimit-d.written {
		return newError(TooManyBytes, "", "more bytes written than the limit allows")
	}
	d.written += n
	return nil
}

// RaiseByteLimit adds n bytes to the budget of bytes written.
func (d *Document) RaiseByteLimit(n int) { d.byteLimit += n }

// Version returns a number that changes with every write and Reset.
func (d *Document) Version() uint64 { return d.version }

// Work of the steps of operations, in units of one to a few nanoseconds: about the cost of the same step in a guest.
// Remembered and searched values cost the same.
const (
	workHop   = 16 // a segment of a path: a lookup in a map or list
	workEntry = 16 // an entry or element visited
	workValue = 64 // a value measured, compared or copied
)

// TakeWork returns and clears the work since the last call: segments, entries, values and bytes processed by
// operations. The host charges it as fuel, so that a plugin cannot use the host for free.
func (d *Document) TakeWork() int64 {
	w := d.work
	d.work = 0
	return w
}

// SetWorkLimit makes operations fail whose work, as counted by TakeWork, would exceed n. It is checked in the loops of
// operations whose work can exceed the size of the object and of the written values.
func (d *Document) SetWorkLimit(n int64) { d.workLimit = n }

func (d *Document) addWork(n int64) error {
	if d.work += n; d.work > d.workLimit {
		return newError(TooMuchWork, "", "more work than the limit allows")
	}
	return nil
}

// Root returns the root node of the object.
func (d *Document) Root() Node { return Node{d, ObjectRoot} }

// Nodes returns the number of visited nodes, including the roots.
func (d *Document) Nodes() int { return len(d.nodes) }

// Node returns the node with this number, or the zero Node and false if there is none. Read-only nodes below floor,
// other than the roots, are refused too: another plugin visited them in its own configuration.
func (d *Document) Node(id, floor int) (Node, bool) {
	if uint(id) >= uint(len(d.nodes)) {
		return Node{}, false
	}
	if id < floor && id > ConfigRoot && d.nodes[id].flags&fReadOnly != 0 {
		return Node{}, false
	}
	return Node{d, int32(id)}, true
}

// Restore drops all edits (also committed ones), mounts and limits: it is Reset to the same object.
func (d *Document) Restore() { d.Reset(d.origin) }

// Commit makes the current value the base, so that Edits returns only later writes. The host commits between the
// plugins of a chain: each edit then has one author. Earlier Nodes and Views are no longer valid; mounts and limits
// stay.
func (d *Document) Commit() {
	if d.Edited() {
		d.setBase(d.Value())
	}
}

// Rollback drops the edits since the last Commit or Reset. Earlier Nodes and Views are no longer valid.
func (d *Document) Rollback() {
	base, _ := d.nodes[ObjectRoot].base.(map[string]any)
	d.setBase(base)
}

func (d *Document) setBase(base map[string]any) {
	context, _ := d.nodes[ContextRoot].base.(map[string]any)
	config, _ := d.nodes[ConfigRoot].base.(map[string]any)
	d.dropVisited()
	// A root that was visited still has its children, so it is shown again.
	for root, v := range [roots]map[string]any{ObjectRoot: base, ContextRoot: context, ConfigRoot: config} {
		if root == 0 {
			continue
		}
		f := flags(fReadOnly)
		if root == ObjectRoot {
			f = 0
		}
		d.nodes[root] = node{}
		d.setRoot(root, v, f)
	}
}

// Edited reports whether anything was written since the last Commit or Reset.
func (d *Document) Edited() bool { return d.nodes[ObjectRoot].flags&fDirty != 0 }

// keepString copies s to the arena: keys and strings come from a guest's memory, which changes.
func (d *Document) keepString(s string) string {
	if s == "" {
		return ""
	}
	if cap(d.arena)-len(d.arena) < len(s) {
		// Earlier strings keep the old block alive; it is never written again.
		d.arena = make([]byte, 0, max(2*cap(d.arena), len(s), 1024))
	}
	off := len(d.arena)
	d.arena = append(d.arena, s...)
	return unsafe.String(&d.arena[off], len(s))
}

// addNode appends an absent node below parent. Pointers into d.nodes are stale afterwards.
func (d *Document) addNode(parent int32) (int32, error) {
	c := len(d.nodes)
	if c >= d.nodeLimit {
		return 0, newError(TooManyNodes, "", "more places of the object visited than the limit allows")
	}
	depth := d.nodes[parent].depth + 1
	if depth > maxDepth {
		return 0, newError(TooDeep, "", "nested too deeply")
	}
	if c < cap(d.nodes) {
		// Reset zeroed the node.
		d.nodes = d.nodes[:c+1]
	} else {
		d.nodes = append(d.nodes, node{})
	}
	n := &d.nodes[c]
	n.parent, n.depth = parent, depth
	n.flags = d.nodes[parent].flags & fReadOnly
	return int32(c), nil
}
