// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// Node names one place of a Document. The zero Node is absent. Valid until the Document's Reset, Commit
// or Rollback.
type Node struct {
	d  *Document
	id int32
}

// ID is the number of the node; 0 for an absent one.
func (n Node) ID() int { return int(n.id) }

// View reads the value at the place.
func (n Node) View() View {
	if n.id == 0 {
		return View{}
	}
	return n.d.viewOf(n.id)
}

// Kind returns the kind of the value at the place.
func (n Node) Kind() Kind { return n.View().kind }

// Len is as of View.
func (n Node) Len() int { return n.View().Len() }

// ReadOnly reports whether the place is below the context or the configuration.
func (n Node) ReadOnly() bool { return n.id != 0 && n.d.nodes[n.id].flags&fReadOnly != 0 }

// At reads the value at a path below; the empty path is the node itself. Errors: a malformed path, a step into a scalar.
func (n Node) At(path string) (View, error) {
	if n.id == 0 {
		return View{}, checkPath(path)
	}
	if path == "" {
		return n.d.viewOf(n.id), nil
	}
	r, err := n.d.route(path)
	if err != nil {
		return View{}, err
	}
	return n.d.resolve(n.id, r)
}

// Get is At that gives the place. The zero Node when there is nothing.
func (n Node) Get(path string) (Node, error) {
	if n.id == 0 {
		return Node{}, checkPath(path)
	}
	r, err := n.d.route(path)
	if err != nil {
		return Node{}, err
	}
	id, err := n.d.visit(n.id, r)
	return Node{n.d, id}, err
}

// Field is the entry of a map with that very key; the zero Node when there is none. An error: not a map.
func (n Node) Field(key string) (Node, error) {
	switch k := n.Kind(); k {
	case Absent, Null:
		return Node{}, nil
	case Map:
		id, err := n.d.visitField(n.id, name{text: key})
		return Node{n.d, id}, err
	default:
		return Node{}, wrongKind("", k, "a map")
	}
}

// Index is an element of a list; the zero Node past its end. An error: not a list.
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

// Base is the object without the edits since the last Commit, or Reset.
func (d *Document) Base() View { return rawView(d.nodes[ObjectRoot].base) }
