// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A container that starts after a change of its configuration sees the change. So what starts containers on the provider must not overtake what
// it refers to. The engine knows which copies are in step: an object is behind from the moment when it is enqueued, for whatever reason, until it
// has been evaluated and its copy is what it should be, or is known not to be. That is recorded for kinds with Kind.Tracked, only for objects that
// are behind, and costs no call of an API server.

// Reference names what an object refers to, by the name that it has on the provider; "" is everything of the kind in the namespace.
type Reference struct{ Kind, Name string }

// Lag is an object that is not in step on the provider.
type Lag struct {
	Kind, Name string // of this cluster; Name is "" while the objects of the kind are not known
	// Err is the last error of the object, nil before the first.
	Err error
	// Failing is since when the provider, or a plugin, refuses this state of the object; zero unless it does.
	Failing time.Time
}

// String names the object, and what is wrong with it.
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

// steps records which objects of a scope are behind, and who waits for them. Safe for concurrent use.
type steps struct {
	mu     sync.Mutex
	turn   uint64 // of the last change
	behind map[string]*lagging
	fresh  int             // how many of them do not fail
	all    map[waiter]bool // wait until none is fresh
}

type lagging struct {
	turn    uint64
	err     error
	failing time.Time
	waiters map[waiter]bool
}

// waiter is an object of another kind that is enqueued when what it waits for is in step.
type waiter struct {
	r   *reflector
	key Key
}

// waiters are objects that wait for the same. The zero value is ready. Safe for concurrent use.
type waiters struct {
	mu  sync.Mutex
	set map[waiter]bool
}

func (w *waiters) add(who waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		w.set = map[waiter]bool{}
	}
	w.set[who] = true
}

// wake enqueues all of them.
func (w *waiters) wake() {
	w.mu.Lock()
	woken := w.set
	w.set = nil
	w.mu.Unlock()
	wake(woken)
}

// mark notes that an object was enqueued.
func (s *steps) mark(name string) {
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

// begin returns the turn of an object whose evaluation begins.
func (s *steps) begin(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.behind[name]; known != nil {
		return known.turn
	}
	return 0
}

// settle notes that an object is in step, unless it was enqueued again since that turn, and enqueues who waited for that.
func (s *steps) settle(name string, turn uint64) {
	s.mu.Lock()
	known := s.behind[name]
	if known == nil || known.turn != turn {
		s.mu.Unlock()
		return
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

// fail notes why an object is not in step. answered errors last until somebody changes something; since they began is remembered until the
// object itself has changed.
func (s *steps) fail(name string, err error, answered bool, now time.Time) {
	s.mu.Lock()
	known := s.behind[name]
	if known == nil {
		s.mu.Unlock()
		return
	}
	known.err = err
	if answered && known.failing.IsZero() {
		known.failing = now
		s.fresh--
	}
	all := s.takeAll()
	s.mu.Unlock()
	wake(all)
}

// changed notes that an object has another content than the one that failed.
func (s *steps) changed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.behind[name]; known != nil && !known.failing.IsZero() {
		known.failing, known.err = time.Time{}, nil
		s.fresh++
	}
}

// await enqueues the waiter when nothing is fresh any more, or wakeAll is called.
func (s *steps) await(who waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[waiter]bool{}
	}
	s.all[who] = true
}

// takeAll returns who waits for everything, if nothing is fresh any more. The caller holds mu.
func (s *steps) takeAll() map[waiter]bool {
	if s.fresh > 0 {
		return nil
	}
	all := s.all
	s.all = nil
	return all
}

// lags returns the objects of a name, or "" for all, that are behind, and enqueues the waiter when they no longer are.
func (s *steps) lags(kind, name string, who waiter, into []Lag) []Lag {
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
			known.waiters = map[waiter]bool{}
		}
		known.waiters[who] = true
		return append(into, Lag{Kind: kind, Name: name, Err: known.err, Failing: known.failing})
	}
	if s.fresh > 0 {
		if s.all == nil {
			s.all = map[waiter]bool{}
		}
		s.all[who] = true
	}
	for name, known := range s.behind {
		into = append(into, Lag{Kind: kind, Name: name, Err: known.err, Failing: known.failing})
	}
	return into
}

// wakeAll enqueues everyone who waits: the scope ends, was listed, or is known not to be.
func (s *steps) wakeAll() {
	s.mu.Lock()
	woken := []map[waiter]bool{s.all}
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

func wake(waiters map[waiter]bool) {
	for who := range waiters {
		who.r.queue.Add(who.key)
	}
}

// Lags returns what an object refers to that is not in step on the provider, sorted, and has the object enqueued when that changes. Kinds that are
// not tracked need only have been read. Kinds that are not reflected, by this virtual kubelet or at all, or that an API server denies, do not count: their objects do not cross, or another
// virtual kubelet knows.
func (s *Scope) Lags(references []Reference, key Key) (lags []Lag) {
	m, who := s.r.m, waiter{s.r, key}
	if m.electing.Load() {
		if m.starting.add(who); m.electing.Load() {
			return []Lag{{}}
		}
	}
	for _, reference := range references {
		r := m.reflector(reference.Kind)
		if r == nil || !m.isOurs(&r.kind) || r.kind.Tracked && !r.kind.PerNode && !m.leading.Load() {
			continue
		}
		own := s.namespace.of(reference.Kind)
		if own == nil {
			m.starting.add(who)
			own = s.namespace.of(reference.Kind)
		}
		switch {
		case own == nil || !own.isListed(who):
			lags = append(lags, Lag{Kind: reference.Kind})
		case reference.Name == "":
			lags = own.steps.lags(reference.Kind, "", who, lags)
		case r.remoteName(r.localName(reference.Name)) == reference.Name:
			lags = own.steps.lags(reference.Kind, r.localName(reference.Name), who, lags)
		}
	}
	if len(lags) < 2 {
		return lags
	}
	slices.SortFunc(lags, func(a, b Lag) int { return strings.Compare(a.Kind+"/"+a.Name, b.Kind+"/"+b.Name) })
	return slices.CompactFunc(lags, func(a, b Lag) bool { return a.Kind == b.Kind && a.Name == b.Name })
}

// isListed reports whether the objects of a scope were read and enqueued, or will not be, and enqueues the waiter when that is so.
func (s *Scope) isListed(who waiter) bool {
	known := func() bool { return s.listed.Load() || s.deniedHere.lasts() || s.deniedThere.lasts() }
	if known() {
		return true
	}
	s.steps.await(who)
	return known()
}

// arrived notes that an object of the kind was enqueued.
func (r *reflector) arrived(key Key) {
	r.arrivals.note(key, r.m.options.Clock.Now())
	if s := r.tracked(key); s != nil {
		s.steps.mark(key.Name)
	}
}

// tracked returns the scope of an object of which it is recorded whether it is in step, nil if that is not.
func (r *reflector) tracked(key Key) *Scope {
	if !r.kind.Tracked {
		return nil
	}
	if t := r.m.extension(key.Namespace); t != nil {
		return t.of(r.kind.Name)
	}
	return nil
}

// removed notes that nothing of an object is to be on the provider, and that nothing is, unless that failed.
func (w *Worker) removed(err error) error {
	w.inStep = err == nil
	return err
}

// converged notes that the copy of an object is what it should be; remote is what it was before. One that is going, or was deleted to be
// recreated, is not.
func (w *Worker) converged(remote *unstructured.Unstructured) {
	w.inStep = w.Result != "deleted" && (remote == nil || remote.GetDeletionTimestamp() == nil)
}

// settle notes that the evaluated object is in step. It must be called when the queue has been told that the evaluation has ended: an object that was
// enqueued meanwhile is behind again by then.
func (w *Worker) settle(key Key) {
	if w.scope != nil && w.inStep {
		w.scope.steps.settle(key.Name, w.turn)
	}
	w.scope = nil
}

// lasts reports whether an error of this class lasts until somebody changes something, rather than being a state of the way to the provider.
func (c Class) lasts() bool {
	return c != Unreachable && c != Throttled && c != Conflict
}

// noteLag notes that an object is not in step because of an error.
func (r *reflector) noteLag(key Key, class Class, err error) {
	if s := r.tracked(key); s != nil {
		s.steps.fail(key.Name, err, class.lasts(), r.m.options.Clock.Now())
	}
}
