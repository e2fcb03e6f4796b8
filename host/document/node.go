// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// Node is a small value that names one place of a Document.
type Node struct {
	d  *Document
	id int32
}

// View is a value read from a Document without making a node of it.
type View struct {
	n   Node
	raw any
}

func (n Node) Kind() Kind                            { return Absent }
func (n Node) Len() int                              { return 0 }
func (n Node) Field(key string) Node                 { return n }
func (n Node) Index(i int) Node                      { return n }
func (n Node) Get(path string) (Node, error)         { return n, nil }
func (n Node) At(path string) (View, error)          { return View{}, nil }
func (n Node) View() View                            { return View{} }
func (n Node) Value() any                            { return nil }
func (v View) Kind() Kind                            { return Absent }
func (v View) Len() int                              { return 0 }
func (v View) Str() (string, bool)                   { return "", false }
func (v View) Int() (int64, bool)                    { return 0, false }
func (v View) Float() (float64, bool)                { return 0, false }
func (v View) Bool() (bool, bool)                    { return false, false }
func (v View) Keys(dst []string) []string            { return dst } // sorted
func (v View) Value() any                            { return nil }
func (v View) AppendJSON(dst []byte) []byte          { return dst }
func (n Node) SetString(path, s string) error        { return nil }
func (n Node) SetInt(path string, i int64) error     { return nil }
func (n Node) SetFloat(path string, f float64) error { return nil }
func (n Node) SetBool(path string, b bool) error     { return nil }
func (n Node) SetNull(path string) error             { return nil }
func (n Node) SetMap(path string) (Node, error)      { return n, nil }
func (n Node) SetList(path string) (Node, error)     { return n, nil }
func (n Node) EnsureMap(path string) (Node, error)   { return n, nil }

// Assign makes the value at path equal to v with the fewest edits; v is shared, do not modify it afterwards.
func (n Node) Assign(path string, v any) error { return nil }

// Copy puts src's subtree at path, shared not copied.
func (n Node) Copy(path string, src Node) error { return nil }

// Remove takes paths separated by newlines and returns how many values went.
func (n Node) Remove(paths string) (int, error) { return 0, nil }
func (n Node) RemoveElem(i int) error           { return nil }

// RemoveKeys removes from the map at path each key that matches one of the globs (`*`, `?`).
func (n Node) RemoveKeys(path string, globs []string) (int, error) { return 0, nil }

// Hash is order-independent and stable across processes.
func Hash(v any) uint64 { return 0 }

// Covers tells whether every value of n is present and equal in remote.
func Covers(n Node, remote any) bool { return false }

// Equal compares by value; whole floats equal the same int.
func Equal(n Node, v any) bool { return false }
