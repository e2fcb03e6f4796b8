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

// In Kubernetes a container sees every change of its configuration that precedes its start. A pod must therefore not
// reach the provider before the objects that it refers to. An object is behind from the moment when it is enqueued, for
// any reason, until its evaluation has written the desired copy, or has found that there must be none. This is recorded
// for kinds with Kind.Tracked, only while an object is behind, and without API calls.

// Reference names an object of a kind by its name on the provider; without a name, all objects of the kind in the
// namespace.
type Reference struct{ Kind, Name string }

// Lag describes an object that is behind on the provider.
type Lag struct {
	Kind, Name string // in this cluster; Name is "" until the objects of the kind have been listed
	// Err is the last error of the object, nil before the first.
	Err error
	// Failing is the time at which the provider, or a plugin, first rejected the object in its current version; zero if
	// neither did.
	Failing time.Time
}

// String names the object and its last error.
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

// steps records the objects of a scope that are behind, and the objects of other kinds that wait for them. Safe for
// concurrent use.
type steps struct {
	mu     sync.Mutex
	turn   uint64 // turn of the last change
	behind map[string]*lagging
	fresh  int             // number of objects that are behind and not failing
	all    map[waiter]bool // enqueued when fresh becomes 0
}

type lagging struct {
	turn    uint64
	err     error
	failing time.Time
	waiters map[waiter]bool
}

// waiter is an object of another kind, to be enqueued when the objects it waits for are in step.
type waiter struct {
	r   *reflector
	key Key
}

// waiters is a set of objects that wait for the same event. The zero value is ready to use. Safe for concurrent use.
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

// wake enqueues all waiters.
func (w *waiters) wake() {
	w.mu.Lock()
	woken := w.set
	w.set = nil
	w.mu.Unlock()
	wake(woken)
}

// mark records that an object was enqueued.
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

// settle records that an object is in step, unless it was enqueued again since that turn, and enqueues its waiters.
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

// fail records the error of an object that is behind. lasts marks errors that persist until a user changes something:
// the time of the first one is kept until the object changes.
func (s *steps) fail(name string, err error, lasts bool, now time.Time) {
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

// changed records that an object has a new version, which has not failed yet.
func (s *steps) changed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.behind[name]; known != nil && !known.failing.IsZero() {
		known.failing, known.err = time.Time{}, nil
		s.fresh++
	}
}

// await enqueues the waiter when fresh becomes 0 or wakeAll is called.
func (s *steps) await(who waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[waiter]bool{}
	}
	s.all[who] = true
}

// takeAll removes and returns the waiters for all objects if fresh is 0. The caller holds mu.
func (s *steps) takeAll() map[waiter]bool {
	if s.fresh > 0 {
		return nil
	}
	all := s.all
	s.all = nil
	return all
}

// lags appends the named object, or all objects if name is "", if they are behind. It enqueues the waiter when they are
// in step.
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

// wakeAll enqueues all waiters. It is called when the scope ends, was listed, or cannot be listed.
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

// Lags returns the referenced objects that are behind on the provider, sorted. It enqueues the object with the key when
// this list changes. For kinds that are not tracked, it returns only kinds that have not been listed. Kinds that are
// not reflected are ignored, as are kinds that an API server denies or that another virtual kubelet reflects.
func (s *Scope) Lags(references []Reference, key Key) (lags []Lag) {
	m, who := s.r.m, waiter{s.r, key}
	if len(references) > 0 && m.electing.Load() {
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

// isListed reports whether the objects of a scope were listed and enqueued, or cannot be listed. Otherwise it enqueues
// the waiter when this becomes true.
func (s *Scope) isListed(who waiter) bool {
	known := func() bool { return s.listed.Load() || s.deniedHere.lasts() || s.deniedThere.lasts() }
	if known() {
		return true
	}
	s.steps.await(who)
	return known()
}

// arrived records that an object of the kind was enqueued.
func (r *reflector) arrived(key Key) {
	r.arrivals.note(key, r.m.options.Clock.Now())
	if s := r.tracked(key); s != nil {
		s.steps.mark(key.Name)
	}
}

// tracked returns the scope of an object of a tracked kind, or nil.
func (r *reflector) tracked(key Key) *Scope {
	if !r.kind.Tracked {
		return nil
	}
	if t := r.m.extension(key.Namespace); t != nil {
		return t.of(r.kind.Name)
	}
	return nil
}

// removed records that an object should have no copy and has none, unless err is set, and returns err.
func (w *Worker) removed(err error) error {
	w.inStep = err == nil
	return err
}

// converged records that the copy of an object has the desired state. remote is the copy before the write. A copy that
// is being deleted or recreated does not count.
func (w *Worker) converged(remote *unstructured.Unstructured) {
	w.inStep = w.Result != "deleted" && (remote == nil || remote.GetDeletionTimestamp() == nil)
}

// settle records that the evaluated object is in step. It must be called after Done of the queue, which marks objects
// that were enqueued in the meantime as behind.
func (w *Worker) settle(key Key) {
	if w.scope != nil && w.inStep {
		w.scope.steps.settle(key.Name, w.turn)
	}
	w.scope = nil
}

// lasts reports whether errors of the class persist until a user changes something.
func (c Class) lasts() bool {
	return c != Unreachable && c != Throttled && c != Conflict
}

// noteLag records the error of an object that is behind.
func (r *reflector) noteLag(key Key, class Class, err error) {
	if s := r.tracked(key); s != nil {
		s.steps.fail(key.Name, err, class.lasts(), r.m.options.Clock.Now())
	}
}
