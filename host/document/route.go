// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strings"

// name is a key. Unless it is owned, its text is borrowed: it may be in the memory of a guest, which can change.
type name struct {
	text  string
	owned bool
}

// hop is one step of a route.
type hop struct {
	name
	wild  bool  // the wildcard `*`, valid only in removals
	push  bool  // the segment `-`, which appends to a list
	index int32 // position in a list; -1 if the text is not a number
}

// containerKind returns the kind of container that is created if the hop's container is missing.
func (h *hop) containerKind() Kind {
	if h.push {
		return List
	}
	return Map
}

// route is a parsed path.
type route struct {
	text  string
	hops  []hop
	again bool // the first hop is the same as in the previous route
	work  int32
}

// parsePath parses a path. It reuses the memory of the previous route.
func (r *route) parsePath(path string, owned bool) error {
	r.text, r.hops, r.again = path, r.hops[:0], false
	if err := checkPath(path); err != nil {
		return err
	}
	for s := (scanner{path: path}); !s.isDone(); {
		if !s.scanSegment() {
			return s.pathError()
		}
		text := s.segmentText()
		r.hops = append(r.hops, hop{
			name:  name{text, owned || s.escaped},
			wild:  text == "*" && !s.verbatim,
			push:  text == "-" && !s.verbatim,
			index: int32(parseIndex(text)),
		})
	}
	r.work = int32(len(path)/2 + workHop*len(r.hops))
	return nil
}

// isLast reports whether hop number at is the last one.
func (r *route) isLast(at int) bool { return at+1 == len(r.hops) }

// sameStart reports whether both routes have the same first key and further hops.
func (r *route) sameStart(other *route) bool {
	return len(r.hops) > 1 && len(other.hops) > 1 && !r.hops[0].wild && r.hops[0] == other.hops[0]
}

func checkPath(path string) error {
	if len(path) > MaxPathBytes {
		return newError(BadPath, path, "longer than 1024 bytes")
	}
	return nil
}

func (r *route) noWildcard() error {
	return newError(BadPath, r.text, "only removals take the wildcard * (the key is written [*])")
}

func (r *route) noNumber(at int) error {
	return newError(BadIndex, r.text, "a list's element needs a number, not "+quotePath(r.hops[at].text))
}

// routeOf returns the parsed path. The result is in a slot, or in memory that the next call reuses.
func (d *Document) routeOf(path string) (*route, error) {
	s := d.slotOf(path)
	k := s.known
	if k != nil && k.text == path && !k.lines {
		s.credit = maxCredit
	} else if k = s.learnText(path, false); k == nil {
		err := d.scratch.parsePath(path, false)
		d.work += int64(d.scratch.work)
		return &d.scratch, err
	}
	d.work += int64(k.routes[0].work)
	return &k.routes[0], nil
}

// lines iterates over the paths in a text, which are separated by newlines. The whole text was parsed before, or each
// path is parsed when it is reached.
type lines struct {
	known []route
	rest  string
	more  bool
}

// openText starts the iteration at the first path of a text.
func (l *lines) openText(d *Document, text string) {
	l.more = true
	s := d.slotOf(text)
	k := s.known
	if k != nil && k.text == text && k.lines {
		s.credit = maxCredit
	} else if k = s.learnText(text, true); k == nil {
		l.rest = text
		return
	}
	l.known = k.routes
}

// nextRoute returns the next path. The result is valid until the next call of nextRoute or Document.routeOf.
// nextRoute may be called only while more is true.
func (l *lines) nextRoute(d *Document) (*route, error) {
	if l.known != nil {
		r := &l.known[0]
		l.known = l.known[1:]
		l.more = len(l.known) > 0
		return r, d.addWork(int64(r.work))
	}
	var path string
	path, l.rest, l.more = strings.Cut(l.rest, "\n")
	err := d.scratch.parsePath(path, false)
	if err == nil {
		err = d.addWork(int64(d.scratch.work))
	}
	return &d.scratch, err
}
