// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strings"

// name is a key. Unless it is owned its text is borrowed: it may lie in a guest's memory, which changes.
type name struct {
	text  string
	owned bool
}

// hop is one step of a route.
type hop struct {
	name
	wild  bool  // `*`, which only removals take
	push  bool  // `-`, which appends
	index int32 // of a list's element; -1 when the text is no number
}

// container returns the kind of value that is created for the hop where there is nothing.
func (h *hop) container() Kind {
	if h.push {
		return List
	}
	return Map
}

// route is a path taken apart.
type route struct {
	text  string
	hops  []hop
	again bool // the first hop is the same as in the route before
	work  int32
}

// parse takes a path apart, in the memory of the route before.
func (r *route) parse(path string, owned bool) error {
	r.text, r.hops, r.again = path, r.hops[:0], false
	if err := checkPath(path); err != nil {
		return err
	}
	for s := (scanner{path: path}); !s.done(); {
		if !s.next() {
			return s.err()
		}
		text := s.text()
		r.hops = append(r.hops, hop{
			name:  name{text, owned || s.escaped},
			wild:  text == "*" && !s.verbatim,
			push:  text == "-" && !s.verbatim,
			index: int32(index(text)),
		})
	}
	r.work = int32(len(path)/2 + workHop*len(r.hops))
	return nil
}

// last reports whether nothing comes behind the hop at.
func (r *route) last(at int) bool { return at+1 == len(r.hops) }

// sameStart reports whether both go on from the same key.
func (r *route) sameStart(other *route) bool {
	return len(r.hops) > 1 && len(other.hops) > 1 && !r.hops[0].wild && r.hops[0] == other.hops[0]
}

func checkPath(path string) error {
	if len(path) > MaxPathBytes {
		return fail(BadPath, path, "longer than 1024 bytes")
	}
	return nil
}

func (r *route) noWildcard() error {
	return fail(BadPath, r.text, "only removals take the wildcard * (the key is written [*])")
}

func (r *route) noNumber(at int) error {
	return fail(BadIndex, r.text, "a list's element needs a number, not "+quote(r.hops[at].text))
}

// route gives the path taken apart: as it was kept, or in memory that the next call uses again.
func (d *Document) route(path string) (*route, error) {
	s := d.slotOf(path)
	k := s.known
	if k != nil && k.text == path && !k.lines {
		s.credit = maxCredit
	} else if k = s.learn(path, false); k == nil {
		err := d.scratch.parse(path, false)
		d.work += int64(d.scratch.work)
		return &d.scratch, err
	}
	d.work += int64(k.routes[0].work)
	return &k.routes[0], nil
}

// lines are the paths of a text, separated by newlines: kept ones, or else those to come.
type lines struct {
	known []route
	rest  string
	more  bool
}

// open begins with the first path of a text.
func (l *lines) open(d *Document, text string) {
	l.more = true
	s := d.slotOf(text)
	k := s.known
	if k != nil && k.text == text && k.lines {
		s.credit = maxCredit
	} else if k = s.learn(text, true); k == nil {
		l.rest = text
		return
	}
	l.known = k.routes
}

// next gives the next path, valid until the following call of next or of Document.route. There is one while more is true.
func (l *lines) next(d *Document) (*route, error) {
	if l.known != nil {
		r := &l.known[0]
		l.known = l.known[1:]
		l.more = len(l.known) > 0
		return r, d.toil(int64(r.work))
	}
	var path string
	path, l.rest, l.more = strings.Cut(l.rest, "\n")
	err := d.scratch.parse(path, false)
	if err == nil {
		err = d.toil(int64(d.scratch.work))
	}
	return &d.scratch, err
}
