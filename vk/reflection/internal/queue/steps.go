// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"sync"
	"time"
)

// A container in Kubernetes sees every change of its configuration that was made before it started. Therefore a pod
// must not reach the provider before the objects that it refers to. An object counts as behind, i.e. its copy may be
// outdated, from the moment when it is enqueued for any reason. This ends when its evaluation has written the desired
// copy, or has found that no copy is desired. Only objects that are behind are recorded, and only if Kind.Tracked is
// set. This needs no API calls.

// Reference refers to an object by its kind and its name on the provider. An empty name refers to all objects of the
// kind in the namespace.
type Reference struct{ Kind, Name string }

// Lag describes an object whose copy is not up to date.
type Lag struct {
	Kind, Name string // kind and name in this cluster; Name is empty until the objects of the kind have been listed
	// Err is the last error of the object, or nil if there was none.
	Err error
	// Failing is the time at which the provider or a plugin first rejected the current version of the object. It is
	// zero if this has not happened.
	Failing time.Time
}

// String returns the name of the object and its last error, for messages.
func (l Lag) String() string {
	text := l.Kind + " " + l.Name
	switch {
	case l.Kind == "":
		text = "the election of the virtual kubelet that reflects what all virtual nodes of the provider share"
	case l.Name == "":
		text = "all objects of kind " + l.Kind + ", which are being read"
	}
	if l.Err != nil {
		text += " (" + l.Err.Error() + ")"
	}
	return text
}

// Steps records which objects of a scope have copies that are not up to date, and which objects of other kinds wait for
// them. It is safe for concurrent use.
type Steps struct {
	mu     sync.Mutex
	turn   uint64 // incremented with each change
	behind map[string]*lagging
	fresh  int // number of objects in behind that have not failed
	// excluded contains why an object of this cluster deliberately has no copy, by the name of the object.
	excluded map[string]string
	all      map[Waiter]bool // waiters for all objects; they are enqueued when fresh becomes 0
}

type lagging struct {
	turn    uint64
	err     error
	failing time.Time
	waiters map[Waiter]bool
}

// Waiter is an object that waits for objects of another kind. It is enqueued when these are up to date.
type Waiter struct {
	queue *Queue
	key   Key
}

// Waiter returns a Waiter for an object in the Queue.
func (q *Queue) Waiter(key Key) Waiter { return Waiter{q, key} }

// Waiters is a set of objects that wait for the same event. The zero value is ready for use. Waiters is safe for
// concurrent use.
type Waiters struct {
	mu  sync.Mutex
	set map[Waiter]bool
}

// Add adds an object to the set.
func (w *Waiters) Add(who Waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		w.set = map[Waiter]bool{}
	}
	w.set[who] = true
}

// Wake enqueues all objects in the set, and empties the set.
func (w *Waiters) Wake() {
	w.mu.Lock()
	woken := w.set
	w.set = nil
	w.mu.Unlock()
	wake(woken)
}

// Mark records that an object was enqueued.
func (s *Steps) Mark(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	known := s.behind[name]
	if known == nil {
		if s.behind == nil {
			s.behind = map[string]*lagging{}
		}
		s.behind[name] = &lagging{turn: s.turn}
		s.fresh++
		return
	}
	known.turn = s.turn
}

// Begin records that the evaluation of an object has begun. It returns the object's turn, which is passed to Settle.
func (s *Steps) Begin(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.behind[name]; known != nil {
		return known.turn
	}
	return 0
}

// Settle records that the copy of an object is up to date, unless the object was enqueued again after this turn had
// begun. It enqueues the objects that wait for this object. exclusion is the reason why the object deliberately has no
// copy, or "".
func (s *Steps) Settle(name string, turn uint64, exclusion string) {
	s.mu.Lock()
	known := s.behind[name]
	if known == nil || known.turn != turn {
		s.mu.Unlock()
		return
	}
	if exclusion == "" {
		delete(s.excluded, name)
	} else {
		if s.excluded == nil {
			s.excluded = map[string]string{}
		}
		s.excluded[name] = exclusion
	}
	delete(s.behind, name)
	if known.failing.IsZero() {
		s.fresh--
	}
	woken := known.waiters
	all := s.takeAll()
	s.mu.Unlock()
	wake(woken)
	wake(all)
}

// Exclusion returns why an object deliberately has no copy. It returns "" if the object has a copy, does not exist, or
// is behind.
func (s *Steps) Exclusion(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind[name] != nil {
		return ""
	}
	return s.excluded[name]
}

// Fail records the error of an object whose copy is not up to date. lasts reports whether the error persists until a
// user changes something. The time of the first such error is kept until the object changes.
func (s *Steps) Fail(name string, err error, lasts bool, now time.Time) {
	s.mu.Lock()
	known := s.behind[name]
	if known == nil {
		s.mu.Unlock()
		return
	}
	known.err = err
	if lasts && known.failing.IsZero() {
		known.failing = now
		s.fresh--
	}
	all := s.takeAll()
	s.mu.Unlock()
	wake(all)
}

// Changed records that an object has a new version, for which no error has occurred yet.
func (s *Steps) Changed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.behind[name]; known != nil && !known.failing.IsZero() {
		known.failing, known.err = time.Time{}, nil
		s.fresh++
	}
}

// Await adds a waiter. It is enqueued when the copy of each object is up to date or has failed, or when WakeAll is
// called.
func (s *Steps) Await(who Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[Waiter]bool{}
	}
	s.all[who] = true
}

// takeAll removes and returns the objects that wait for all objects of the kind. If fresh is not 0, it returns nil.
// s.mu must be locked.
func (s *Steps) takeAll() map[Waiter]bool {
	if s.fresh > 0 {
		return nil
	}
	all := s.all
	s.all = nil
	return all
}

// Lags appends the named object to into if its copy is not up to date. If name is empty, it appends all such objects.
// who is enqueued when the named object is up to date, or, if name is empty, when no object is behind without having
// failed.
func (s *Steps) Lags(kind, name string, who Waiter, into []Lag) []Lag {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.behind) == 0 {
		return into
	}
	if name != "" {
		known := s.behind[name]
		if known == nil {
			return into
		}
		if known.waiters == nil {
			known.waiters = map[Waiter]bool{}
		}
		known.waiters[who] = true
		return append(into, Lag{Kind: kind, Name: name, Err: known.err, Failing: known.failing})
	}
	if s.fresh > 0 {
		if s.all == nil {
			s.all = map[Waiter]bool{}
		}
		s.all[who] = true
	}
	for name, known := range s.behind {
		into = append(into, Lag{Kind: kind, Name: name, Err: known.err, Failing: known.failing})
	}
	return into
}

// WakeAll enqueues all waiters. It is called when the scope ends, when its objects have been listed, or when they
// cannot be listed.
func (s *Steps) WakeAll() {
	s.mu.Lock()
	woken := []map[Waiter]bool{s.all}
	for _, known := range s.behind {
		woken = append(woken, known.waiters)
		known.waiters = nil
	}
	s.all = nil
	s.mu.Unlock()
	for _, waiters := range woken {
		wake(waiters)
	}
}

func wake(waiters map[Waiter]bool) {
	for who := range waiters {
		who.queue.Add(who.key)
	}
}
