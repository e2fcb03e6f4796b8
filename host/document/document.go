// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// Document is a view of a shared object plus the edits made to it. Not for concurrent use; reuse it through Reset.
type Document struct{}

// New gives an empty Document; call Reset before use.
func New() *Document { return &Document{} }

// Reset drops all edits and shows root, which the Document never modifies.
func (d *Document) Reset(root map[string]any) {}

// Root is the object's own node.
func (d *Document) Root() Node { return Node{d: d} }

// Edited tells whether anything was written that differs from the base.
func (d *Document) Edited() bool { return false }

// Mark is a point to roll back to.
type Mark struct{ mark int }

// Checkpoint marks the present state.
func (d *Document) Checkpoint() Mark { return Mark{} }

// Rollback drops every edit made since the mark.
func (d *Document) Rollback(m Mark) {}

// SetAuthor stamps the edits that follow; the guard names the plugin by it.
func (d *Document) SetAuthor(a uint8) {}

// Segment is one step of a path: a key of a map, or (Index >= 0) a position in a list.
type Segment struct {
	Key   string
	Index int
}

// Path leads from the root to a node.
type Path []Segment

// Edit is one thing that was written.
type Edit struct {
	Path    Path // valid during the callback only
	Node    Node // absent when removed
	Removed bool
	Author  uint8
}

// Edits calls yield for what was written, and for nothing else, until yield returns false.
func (d *Document) Edits(yield func(Edit) bool) {}

// Value is the object with its edits applied: a new map where something changed, the base's own maps below.
func (d *Document) Value() map[string]any { return nil }

// Hash is order-independent, stable across processes, and allocates nothing.
func (d *Document) Hash() uint64 { return 0 }
