// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math"
	"unsafe"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// The node numbers of a Document's roots.
const (
	ObjectRoot  = 1
	ContextRoot = 2 // read-only root
	ConfigRoot  = 3 // read-only root

	// Number of roots. Node number 0 counts as a root, but is not a node.
	roots = 4
)

// Maximum values of the budget. MaxNodes fits in a 20-bit handle. MaxBytes is larger than any object that an API
// server accepts.
const (
	MaxNodes = 1 << 20
	MaxBytes = 1 << 30
	// maxDepth limits the nesting of values. It is far above the nesting of real objects, and below the limits of
	// encoding/json and of API servers.
	maxDepth = 512
)

type state uint8

const (
	view    state = iota // the value is the unchanged value in the parent's base
	set                  // the value was written
	removed              // the value does not exist any more
)

type flags uint8

const (
	fBase     flags = 1 << iota // the content is the field base, in which the children replace entries
	fInBase                     // the parent's base has this key
	fDirty                      // this node or one below it was written
	fReadOnly                   // below the context or the configuration
	fReshaped                   // for a list: its positions differ from the positions in its base
	fArena                      // str is stored in the arena
	fOwned                      // key is not stored in the arena
	// This node or a node below it was written since the last Commit. The flag is set only for nodes that existed at
	// that Commit.
	fEdited
)

// node is one visited node with the value that was written to it. An edit is cheap, because it only stores a few
// fields of a node.
type node struct {
	base   any    // shared value, if fBase is set
	str    string // string value, if fBase is not set
	key    string // key in the parent map
	num    uint64 // bits of a bool, int or float, if fBase is not set
	parent int32
	next   int32 // next sibling
	first  int32 // first child of a map
	count  int32 // number of children of a map
	delta  int32 // number of entries of a map minus the number of entries of its base
	list   int32 // 1 + position in Document.lists; 0 if the list was not touched
	index  int32 // 1 + position in Document.indexes; 0 if there is no index
	log    int32 // 1 + position in undo.log; 0 if the node was not logged
	depth  uint16
	kind   Kind
	state  state
	flags  flags
}

// Document is a view of a shared object and the edits made to it. It is not safe for concurrent use, but any number
// of Documents may use the same base at the same time, because none of them modifies it.
type Document struct {
	nodes   []node
	arena   []byte             // stores written keys and strings
	lists   [][]int32          // slots of touched lists: a position in the base, or ^node
	nlists  int                // number of lists in use
	indexes []map[string]int32 // indexes of maps with many children
	nindex  int
	undo    undo

	origin map[string]any // object that was passed to Reset

	nodeLimit int
	byteLimit int
	written   int
	work      int64
	version   uint64
	workLimit int64

	tops   [roots]top
	topped bool                // set if an element of tops is in use
	keys   []string            // reused buffer of the JSON encoder
	path   []fieldpath.Segment // reused buffer of Edits

	paths fieldpath.Cache
}

// New returns an empty Document. Reset must be called before other methods.
func New() *Document {
	d := &Document{nodes: make([]node, roots, 64)}
	d.Reset(nil)
	return d
}

// Sizes above which Reset frees memory instead of keeping it for the next object.
const (
	keepNodes = 1 << 15
	keepArena = 1 << 16
	keepSlots = 1 << 12 // capacity above which the slot slice of a list, or of the undo log, is freed
	keepKeys  = 1 << 12
)

// Reset drops all edits and limits and makes root the base. The Document never modifies root, so other goroutines may
// read it at the same time. Nodes, Views and borrowed strings from before are no longer valid.
func (d *Document) Reset(root map[string]any) {
	d.origin = root
	d.dropVisited()
	d.work, d.workLimit = 0, math.MaxInt64
	d.nodeLimit, d.byteLimit, d.written = MaxNodes, MaxBytes, 0
	d.setRoot(ContextRoot, nil, fReadOnly)
	d.setRoot(ConfigRoot, nil, fReadOnly)
	d.setRoot(ObjectRoot, root, 0)
}

// dropVisited removes the visited nodes and the values that were written to them.
func (d *Document) dropVisited() {
	if len(d.nodes) > roots {
		d.recycleNodes()
	}
	if d.undo.mark != 0 {
		d.forgetUndo()
	}
	d.arena = d.arena[:0]
	d.version++
	if d.topped {
		d.forgetTops()
	}
	d.paths.Release()
}

// forgetTops removes the remembered maps below the roots.
func (d *Document) forgetTops() {
	for i := range d.tops {
		// The entry is no longer valid, because it has an old version.
		d.tops[i].fields = nil
	}
	d.topped = false
}

// setRoot sets the content of a root that has no edits. A nil map means no value.
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

// recycleNodes removes all references to the last object from the table.
func (d *Document) recycleNodes() {
	// Clear the nodes, so that no reference to the last object remains.
	clear(d.nodes)
	d.nodes = d.nodes[:roots]
	if cap(d.nodes) > keepNodes {
		d.nodes = make([]node, roots, 64)
	}
	if cap(d.arena) > keepArena {
		d.arena = nil
	}
	d.recycleTables(0, 0)
	if cap(d.keys) > keepKeys {
		d.keys = nil
	}
}

// recycleTables removes the lists and indexes from the given positions on.
func (d *Document) recycleTables(list, index int) {
	for i := index; i < d.nindex; i++ {
		// A large map is replaced, because a map never frees the memory that it has needed at its largest size.
		if len(d.indexes[i]) > keepKeys {
			d.indexes[i] = make(map[string]int32, 4*indexFrom)
		} else {
			clear(d.indexes[i])
		}
	}
	for i := list; i < d.nlists; i++ {
		if cap(d.lists[i]) > keepSlots {
			d.lists[i] = nil
		}
	}
	d.nlists, d.nindex = list, index
}

// Mount makes v the content of one of the read-only roots until the next Mount or Reset.
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

// SetBudget limits how many nodes are visited and how many bytes are written from now on.
func (d *Document) SetBudget(nodes, bytes int) {
	d.nodeLimit = min(len(d.nodes)+nodes, MaxNodes)
	d.byteLimit, d.written = bytes, 0
}

// Spend counts n bytes against the budget. It is used for logs, for example.
func (d *Document) Spend(n int) error {
	if n > d.byteLimit-d.written {
		return newError(TooManyBytes, "", "more bytes written than the limit allows")
	}
	d.written += n
	return nil
}

// RaiseByteLimit adds n bytes to the budget for written bytes.
func (d *Document) RaiseByteLimit(n int) { d.byteLimit += n }

// Version returns a number that changes with every write and every Reset.
func (d *Document) Version() uint64 { return d.version }

// Work of the steps of an operation. A unit is one to a few nanoseconds, and a step costs about as much as the same
// step in a guest. A remembered value must cost as much as a value that must be searched for, so that a plugin's fuel
// consumption does not depend on earlier objects.
const (
	workHop   = fieldpath.HopWork // a segment of a path: one lookup in a map or list
	workEntry = 16                // an entry or element that is visited
	workValue = 64                // a value that is measured, compared or copied
)

// TakeWork returns the work since the last call, and resets it. Work counts the segments, entries, values and bytes
// that operations process. The host charges it as fuel, so that a plugin cannot let the host work for free.
func (d *Document) TakeWork() int64 {
	w := d.work
	d.work = 0
	return w
}

// SetWorkLimit makes an operation fail if its work, as counted by TakeWork, would exceed n. Only operations whose
// work can exceed the size of the object and of the written values check this limit, in their loops.
func (d *Document) SetWorkLimit(n int64) { d.workLimit = n }

func (d *Document) addWork(n int64) error {
	if d.work += n; d.work > d.workLimit {
		return newError(TooMuchWork, "", "more work than the limit allows")
	}
	return nil
}

// Root returns the root node of the object.
func (d *Document) Root() Node { return Node{d, ObjectRoot} }

// Nodes returns the number of visited nodes. Roots are included.
func (d *Document) Nodes() int { return len(d.nodes) }

// Node returns the node with the number id, or the zero Node and false if there is none. A read-only node with a
// number below floor also counts as missing, unless it is a root, because another plugin has visited it in its own
// configuration.
func (d *Document) Node(id, floor int) (Node, bool) {
	if uint(id) >= uint(len(d.nodes)) {
		return Node{}, false
	}
	if id < floor && id > ConfigRoot && d.nodes[id].flags&fReadOnly != 0 {
		return Node{}, false
	}
	return Node{d, int32(id)}, true
}

// Restore removes all edits, including committed ones, all mounts and all limits, as Reset to the same object does.
func (d *Document) Restore() { d.Reset(d.origin) }

// setBase makes a value the base and removes all edits.
func (d *Document) setBase(base map[string]any) {
	context, _ := d.nodes[ContextRoot].base.(map[string]any)
	config, _ := d.nodes[ConfigRoot].base.(map[string]any)
	d.dropVisited()
	// The content of a root that was visited is mounted again, because such a root still has children.
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

// keepString copies s to the arena, because keys and strings may be in a guest's memory, which changes.
func (d *Document) keepString(s string) string {
	if s == "" {
		return ""
	}
	if cap(d.arena)-len(d.arena) < len(s) {
		// The old block stays in memory as long as earlier strings refer to it. It must never be written again.
		d.arena = make([]byte, 0, max(2*cap(d.arena), len(s), 1024))
	}
	off := len(d.arena)
	d.arena = append(d.arena, s...)
	return unsafe.String(&d.arena[off], len(s))
}

// addNode appends an absent node below parent. Existing pointers into d.nodes are invalid afterwards.
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
		// The node need not be cleared, because Reset has done this.
		d.nodes = d.nodes[:c+1]
	} else {
		d.nodes = append(d.nodes, node{})
	}
	n := &d.nodes[c]
	n.parent, n.depth = parent, depth
	n.flags = d.nodes[parent].flags & fReadOnly
	return int32(c), nil
}
