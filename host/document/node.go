// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "github.com/refract-project/refract/host/document/fieldpath"

// Node is one place in a Document. The zero Node is absent. A Node is valid until the next Reset, Commit or Rollback
// of the Document.
type Node struct {
	d  *Document
	id int32
}

// ID returns the number of the node, or 0 for an absent node.
func (n Node) ID() int { return int(n.id) }

// View returns the value of the node.
func (n Node) View() View {
	if n.id == 0 {
		return View{}
	}
	return n.d.viewOf(n.id)
}

// Kind returns the kind of the value.
func (n Node) Kind() Kind { return n.View().kind }

// Len returns the length of the value; see View.Len.
func (n Node) Len() int { return n.View().Len() }

// ReadOnly reports whether the node is below the context or the configuration.
func (n Node) ReadOnly() bool { return n.id != 0 && n.d.nodes[n.id].flags&fReadOnly != 0 }

// At returns the value at a path below the node. The empty path is the node itself. At returns an error if the path
// is malformed or steps into a scalar.
func (n Node) At(path string) (View, error) {
	if n.id == 0 {
		return View{}, checkPath(path)
	}
	if path == "" {
		return n.d.viewOf(n.id), nil
	}
	r, err := n.d.routeOf(path)
	if err != nil {
		return View{}, err
	}
	return n.d.resolveRoute(n.id, r)
}

// Get returns the node at a path, or the zero Node if there is no value. It returns the same errors as At.
func (n Node) Get(path string) (Node, error) {
	if n.id == 0 {
		return Node{}, checkPath(path)
	}
	r, err := n.d.routeOf(path)
	if err != nil {
		return Node{}, err
	}
	id, err := n.d.visitRoute(n.id, r)
	return Node{n.d, id}, err
}

// Field returns the entry of a map with exactly this key, or the zero Node if there is none. It returns an error if n
// is not a map.
func (n Node) Field(key string) (Node, error) {
	switch k := n.Kind(); k {
	case Absent, Null:
		return Node{}, nil
	case Map:
		id, err := n.d.visitField(n.id, fieldpath.Name{Text: key})
		return Node{n.d, id}, err
	default:
		return Node{}, wrongKind("", k, "a map")
	}
}

// Index returns an element of a list, or the zero Node if the list is shorter. It returns an error if n is not a
// list.
func (n Node) Index(i int) (Node, error) {
	switch k := n.Kind(); k {
	case Absent, Null:
		return Node{}, nil
	case List:
		id, err := n.d.visitElem(n.id, i)
		return Node{n.d, id}, err
	default:
		return Node{}, wrongKind("", k, "a list")
	}
}
