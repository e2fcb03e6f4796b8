// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/internal/readonly"
)

// Preview evaluates objects with two sets of chains, the present and the next ones, and compares the results. It writes
// nothing, reports nothing, and remembers nothing about the objects. One goroutine at a time uses it.
type Preview struct {
	m     *Manager
	sides [2]previewSide // before, after
	reads *rate.Limiter
	// conflicts contains the conflicts of the last run of the next chains.
	conflicts host.Conflicts
}

// previewSide runs one of the sets of chains.
type previewSide struct {
	chains mutation.Runner
	w      *evaluation.Worker
}

// NewPreview returns a Preview of the next chains. reads limits the requests for objects that are not cached.
func (m *Manager) NewPreview(next mutation.Runner, reads *rate.Limiter) *Preview {
	p := &Preview{m: m, reads: reads}
	for i, chains := range []mutation.Runner{m.options.Registry, next} {
		p.sides[i] = previewSide{chains, evaluation.NewWorker(m.log)}
		p.sides[i].w.Domain, p.sides[i].w.Env.Measure = mutation.PreviewDomain, false
	}
	p.sides[1].w.Env.Trace = p.conflicts.Trace
	return p
}

// previewInterval is the interval at which AwaitPreview checks whether the objects have been read. A longer interval
// delays a rehearsal.
const previewInterval = 100 * time.Millisecond

// AwaitPreview waits until the objects of all kinds that this virtual kubelet reconciles have been read, except for those
// that an API server denies.
func (m *Manager) AwaitPreview(ctx context.Context) error {
	for !m.isPreviewable() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.options.Clock.After(previewInterval):
		}
	}
	return nil
}

// isPreviewable reports whether every object that this virtual kubelet reconciles has been read, or is denied.
func (m *Manager) isPreviewable() bool {
	if !m.Synced() || m.electing.Load() || !m.Reachable() {
		return false
	}
	for _, t := range m.allExtensions() {
		for _, r := range m.all() {
			s := t.of(r.kind.Name)
			if m.isOurs(&r.kind) && (s == nil || !s.ready.Load() && !s.deniedHere.lasts() && !s.deniedThere.lasts()) {
				return false
			}
		}
	}
	return true
}

// IsLeading reports whether this virtual kubelet reflects the kinds that all virtual nodes of its provider share.
func (m *Manager) IsLeading() bool { return m.leading.Load() }

// PreviewKind is a kind whose objects can be previewed. Events cannot be previewed, because they are not cached.
type PreviewKind struct {
	Name   string
	Cached bool // the content of the objects is cached
	Keys   []queue.Key
	r      *reflector
}

// PreviewKinds returns the objects of the matching kinds that this virtual kubelet reconciles, sorted.
func (m *Manager) PreviewKinds(match func(kind string) bool) (kinds []PreviewKind) {
	for _, r := range m.all() {
		if r.kind.Chain.None || r.kind.Reverse || !match(r.kind.Name) || !r.isActive() {
			continue
		}
		k := PreviewKind{Name: r.kind.Name, Cached: r.kind.Cache.Objects == nil, r: r}
		for _, t := range m.allExtensions() {
			if s := t.of(r.kind.Name); s != nil && s.ready.Load() {
				k.Keys = append(k.Keys, s.objects.KeysIn(s.Local)...)
			}
		}
		slices.SortFunc(k.Keys, func(a, b queue.Key) int { return strings.Compare(a.String(), b.String()) })
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b PreviewKind) int { return strings.Compare(a.Name, b.Name) })
	return kinds
}

// Queued returns the number of enqueued objects of all kinds, and the number of evaluations so far.
func (m *Manager) Queued() (waiting int, evaluated uint64) {
	for _, r := range m.all() {
		waiting += r.queue.Len()
	}
	return waiting, m.evaluated.Load()
}

// Comparison contains the results of both sets of chains for one object.
type Comparison struct {
	Key     queue.Key
	HasCopy bool
	// Object is the content of the object before any plugin runs. It must not be changed.
	Object map[string]any
	// Outgoing and Incoming are nil if the chain does not run on the object.
	Outgoing, Incoming *Pair
	// Conflicts are edits of a plugin of the next chains that a later one overwrites.
	Conflicts []host.Conflict
	// Varies means that the next chains have given different results for the same input.
	Varies bool
}

// Pair contains the results of one chain before and after.
type Pair struct{ Before, After Evaluation }

// Differs reports whether the results differ. Two errors are equal, because both leave everything unchanged.
func (p *Pair) Differs() bool {
	a, b := &p.Before, &p.After
	return (a.Err != nil) != (b.Err != nil) || a.Skipped != b.Skipped || a.hash != b.hash
}

// Evaluation is the result of a chain.
type Evaluation struct {
	Err     error
	Skipped bool
	Ran     []string // plugins that ran
	// Failed are the plugins whose failures are ignored, and that have failed.
	Failed []IgnoredFailure
	// Content contains the fields that are reflected. It is set if the results of the pair differ. Changeable is the
	// part of the content that can change in an existing copy.
	Content, Changeable map[string]any

	hash uint64
}

// IgnoredFailure is the failure of a plugin with IgnoreFailure: the object is reflected without the plugin's edits.
type IgnoredFailure struct {
	Plugin string
	Err    error
}

// NewFailure returns the first ignored failure after the change whose plugin did not fail before the change, or nil.
func (p *Pair) NewFailure() error {
	for _, after := range p.After.Failed {
		if !slices.ContainsFunc(p.Before.Failed, func(before IgnoredFailure) bool { return before.Plugin == after.Plugin }) {
			return after.Err
		}
	}
	return nil
}

// Compare evaluates an object. It returns nil if there is nothing to evaluate. If the plugin with the given name runs on
// the object, the next chains run twice more, in the same and in another instance.
func (p *Preview) Compare(ctx context.Context, k PreviewKind, key queue.Key, plugin string) (*Comparison, error) {
	ctx = readonly.With(ctx, p.reads)
	t := p.m.extension(key.Namespace)
	if t == nil || !k.r.isActive() {
		return nil, ctx.Err()
	}
	s := t.of(k.Name)
	if s == nil || !s.ready.Load() {
		return nil, ctx.Err()
	}
	local := k.r.objects.View(key, func() *unstructured.Unstructured { return s.objects.Peek(key) })
	if local == nil || local.GetDeletionTimestamp() != nil {
		return nil, ctx.Err()
	}
	if decided, err := k.r.handler.Decide(s, local); err != nil || !decided.Cross {
		return nil, ctx.Err()
	}
	local, err := k.r.objects.Whole(ctx, local)
	if err != nil || local == nil {
		return nil, err
	}
	in := k.r.handler.Inputs(s, local)
	c := &Comparison{Key: key, Object: local.Object}
	copied, going := s.PeekCopy(key.Name)
	c.HasCopy = copied != nil && !going
	if c.Outgoing, err = p.pair(ctx, s, host.Outgoing, in.Outgoing, local, plugin, c); err != nil {
		return nil, err
	}
	c.Incoming, err = p.pair(ctx, s, host.Incoming, in.Incoming, local, plugin, c)
	return c, err
}

// pair runs both chains of a hook, and adds conflicts and variations to c. It returns an error only if ctx has ended.
func (p *Preview) pair(ctx context.Context, s *Scope, hook host.Hook, in *mutation.Input, local *unstructured.Unstructured,
	plugin string, c *Comparison) (*Pair, error) {
	if in == nil {
		return nil, ctx.Err()
	}
	pair := &Pair{}
	p.conflicts.Reset()
	var contents [2]func() map[string]any
	for i, e := range []*Evaluation{&pair.Before, &pair.After} {
		if contents[i] = p.evaluate(ctx, s, i, hook, in, local, e); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	c.Conflicts = append(c.Conflicts, p.conflicts.Found()...)
	if pair.Differs() {
		for i, e := range []*Evaluation{&pair.Before, &pair.After} {
			if contents[i] != nil {
				e.Content = contents[i]()
				e.Changeable = s.r.copies.ChangeableContent(e.Content)
			}
		}
	}
	c.Varies = c.Varies || slices.Contains(pair.After.Ran, plugin) && p.varies(ctx, s, hook, in, local, &pair.After)
	return pair, ctx.Err()
}

// varies reports whether another run of the next chain gives another result: in the instance that has just run, or in one
// whose memory was reset.
func (p *Preview) varies(ctx context.Context, s *Scope, hook host.Hook, in *mutation.Input, local *unstructured.Unstructured, first *Evaluation) bool {
	w := p.sides[1].w
	// The first run has found the conflicts. The repetitions do not search for them again.
	w.Env.Trace = nil
	defer func() { w.Env.Trace, w.Fresh = p.conflicts.Trace, false }()
	for _, w.Fresh = range []bool{false, true} {
		again := &Pair{Before: *first}
		p.evaluate(ctx, s, 1, hook, in, local, &again.After)
		if ctx.Err() == nil && again.Differs() {
			return true
		}
	}
	return false
}

// evaluate runs one chain. content returns the result until the next evaluation of the same side. It is nil if the
// chain has failed, or skips the object.
func (p *Preview) evaluate(ctx context.Context, s *Scope, side int, hook host.Hook, in *mutation.Input, local *unstructured.Unstructured, e *Evaluation) (content func() map[string]any) {
	r, w := s.r, p.sides[side].w
	outcome, err := r.mutator.Run(ctx, p.sides[side].chains, w, hook, s.Local, local.Object, in)
	if outcome != nil {
		for i := range outcome.Calls {
			call := &outcome.Calls[i]
			e.Ran = append(e.Ran, strings.Clone(call.Plugin))
			if call.Err != nil {
				e.Failed = append(e.Failed, IgnoredFailure{strings.Clone(call.Plugin), call.Err})
			}
		}
		e.Skipped = outcome.Skipped
	}
	if e.Err = err; err != nil || e.Skipped {
		return nil
	}
	if hook == host.Incoming {
		status := w.Doc.Root().View().Field("status")
		e.hash = status.Hash()
		return func() map[string]any { return r.shownStatus(status.Value()) }
	}
	x, err := r.copies.Desired(w, s.Namespace, local)
	if e.Err = err; err != nil {
		return nil
	}
	e.hash = x.Hash(w)
	return func() map[string]any { return x.Content(w) }
}

// shownStatus returns the fields of a status that are shown here.
func (r *reflector) shownStatus(status any) map[string]any {
	fields := raw.Map(status)
	if r.kind.Status.Fields != nil {
		shown := map[string]any{}
		for _, field := range r.kind.Status.Fields {
			if value, ok := fields[field]; ok {
				shown[field] = value
			}
		}
		fields = shown
	}
	return map[string]any{"status": fields}
}
