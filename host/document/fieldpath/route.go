// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fieldpath

// Name is a key. Unless it is owned, its text is borrowed: it may be in the memory of a guest, which can change.
type Name struct {
	Text  string
	Owned bool
}

// Hop is one step of a Route.
type Hop struct {
	Name
	Wild  bool  // the wildcard `*`, valid only in removals
	Push  bool  // the segment `-`, which appends to a list
	Index int32 // position in a list; -1 if the text is not a number
}

// Route is a parsed path.
type Route struct {
	Text  string
	Hops  []Hop
	Again bool  // the first hop is the same as in the previous route
	Work  int32 // work of parsing the path and following it, in units of document.Document.TakeWork
}

// HopWork is the work of following one hop.
const HopWork = 16

// parsePath parses a path. It reuses the memory of the previous route.
func (r *Route) parsePath(path string, owned bool) error {
	r.Text, r.Hops, r.Again = path, r.Hops[:0], false
	if err := Check(path); err != nil {
		return err
	}
	for s := (scanner{path: path}); !s.isDone(); {
		if !s.scanSegment() {
			return s.pathError()
		}
		text := s.segmentText()
		r.Hops = append(r.Hops, Hop{
			Name:  Name{text, owned || s.escaped},
			Wild:  text == "*" && !s.verbatim,
			Push:  text == "-" && !s.verbatim,
			Index: int32(ParseIndex(text)),
		})
	}
	r.Work = int32(len(path)/2 + HopWork*len(r.Hops))
	return nil
}

// IsLast reports whether hop number at is the last one.
func (r *Route) IsLast(at int) bool { return at+1 == len(r.Hops) }

// sameStart reports whether both routes have the same first key and further hops.
func (r *Route) sameStart(other *Route) bool {
	return len(r.Hops) > 1 && len(other.Hops) > 1 && !r.Hops[0].Wild && r.Hops[0] == other.Hops[0]
}
