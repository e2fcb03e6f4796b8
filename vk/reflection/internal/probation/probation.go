// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package probation watches revisions of plugins for a while after their promotion. The previous revision stays
// loaded, to find out whether an object for which the new revision fails, or which it skips, was handled before:
//
//   - If the new revision fails for more objects than allowed, this virtual kubelet returns to the previous revision
//     at once.
//   - If only the new revision skips an object, the copy of the object is not deleted before the probation is over.
//
// Both work without the controller manager.
package probation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// leastEvaluations is the minimum number of evaluations before a revision can be rolled back. With a lower minimum, a
// single object might cause a rollback.
const leastEvaluations = 20

// Runner runs plugin chains.
type Runner interface {
	Run(ctx context.Context, kind string, hook host.Hook, doc *document.Document, env *host.Env) (*host.Outcome, error)
}

// Options are the options of a Probation. They are required unless stated otherwise.
type Options struct {
	Plugin   string
	Revision string // name of the promoted PluginRevision
	Until    time.Time
	// Previous runs the chains from before the promotion.
	Previous Runner
	// MaxFailedPercent is the maximum percentage of evaluations in which the plugin may fail.
	MaxFailedPercent int32
	// MaxRemoved is the maximum number of copies that may be deleted because the new revision skips their objects and
	// the previous one did not.
	MaxRemoved int64
	// RollBack returns to the previous revision. It is called at most once, and must not block. message is the reason
	// in a form for users.
	RollBack func(message string)
}

// Object identifies a version of an object.
type Object struct {
	Kind, Namespace, Name string
	UID, ResourceVersion  string
}

func (o Object) withoutVersion() Object {
	o.ResourceVersion = ""
	return o
}

// identity returns the object without its UID and version, because the copy of a deleted object is used again if the
// object is recreated.
func (o Object) identity() Object { return Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name} }

// Probation is the probation of a promoted revision. It is safe for concurrent use.
type Probation struct {
	Options

	mu                  sync.Mutex
	evaluated, failures int64
	failed              map[Object]bool // failed evaluations; retries of the same version of an object count once
	removed             map[Object]bool // objects whose copies were permitted to be deleted
	held                map[Object]bool // identities of objects whose copies are held
	rolledBack          bool
}

// New returns a Probation in which nothing is counted yet.
func New(o Options) *Probation {
	return &Probation{Options: o, failed: map[Object]bool{}, removed: map[Object]bool{}, held: map[Object]bool{}}
}

// Continues takes over the counts of an earlier Probation of the same revision with other options.
func (p *Probation) Continues(earlier *Probation) {
	earlier.mu.Lock()
	defer earlier.mu.Unlock()
	p.evaluated, p.failures, p.failed, p.removed, p.held, p.rolledBack = earlier.evaluated, earlier.failures, earlier.failed, earlier.removed, earlier.held, earlier.rolledBack
	earlier.failed, earlier.removed, earlier.held = map[Object]bool{}, map[Object]bool{}, map[Object]bool{}
}

// count counts an evaluation in which the plugin ran. If too many evaluations have failed, it rolls back the revision.
// failsOnlyNow reports whether the previous chain succeeds for the object. It is called only after a failure, and
// without holding the lock.
func (p *Probation) count(o Object, failed bool, failsOnlyNow func() bool) {
	p.mu.Lock()
	again := p.failed[o]
	p.mu.Unlock()
	if again && failed {
		return
	}
	failed = failed && failsOnlyNow()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evaluated++
	if failed {
		p.failures++
		p.failed[o] = true
	}
	if p.rolledBack || p.evaluated < leastEvaluations || p.failures*100 <= int64(p.MaxFailedPercent)*p.evaluated {
		return
	}
	p.rolledBack = true
	p.RollBack(fmt.Sprintf("it failed in %d of %d evaluations of its probation (limit %d %%), on which the previous revision does not fail; see the Events on the objects", p.failures, p.evaluated, p.MaxFailedPercent))
}

// mayRemove reports whether the copy of an object may be deleted. If so, it counts the deletion.
func (p *Probation) mayRemove(o Object) bool {
	o = o.withoutVersion()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.removed[o] || int64(len(p.removed)) < p.MaxRemoved {
		p.removed[o] = true
		delete(p.held, o.identity())
		return true
	}
	p.held[o.identity()] = true
	return false
}

func (p *Probation) release(o Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, o.identity())
}

// releaseNamespace removes all objects of a kind in a namespace from the held objects.
func (p *Probation) releaseNamespace(kind, namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.held, func(o Object, _ bool) bool { return o.Kind == kind && o.Namespace == namespace })
}

// HeldKinds returns the sorted kinds of the objects whose copies are kept although the new revision skips them.
func (p *Probation) HeldKinds() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	kinds := map[string]bool{}
	for o := range p.held {
		kinds[o.Kind] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// Held returns the number of copies that are kept although the new revision skips their objects.
func (p *Probation) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}
