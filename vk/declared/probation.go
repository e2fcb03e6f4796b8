// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/pluginrevision"
	"github.com/refract-project/refract/internal/printable"
	"github.com/refract-project/refract/vk/reflection"
)

// FailedInProbationReason is the reason of a revision that was rolled back on this virtual node.
const FailedInProbationReason = "FailedInProbation"

// defaultMaxFailedPercent is the default in the API.
const defaultMaxFailedPercent = 1

// CandidateChains builds chains without using them for objects. *source.Chains implements it.
type CandidateChains interface {
	// NewCandidate builds the chains for the given declared plugins.
	NewCandidate(ctx context.Context, plugins []source.Declared) (*source.Candidate, []source.Status, error)
}

// occasion is one promotion of a revision. If a revision becomes active again, this is another occasion.
type occasion struct {
	revision string
	at       int64 // status.promotedAt in seconds; 0 if it is not set
}

func occasionOf(p *plugins.ReflectionPlugin) occasion {
	o := occasion{revision: p.Status.ActiveRevision}
	if p.Status.PromotedAt != nil {
		o.at = p.Status.PromotedAt.Unix()
	}
	return o
}

// promotion is an active revision on probation.
type promotion struct {
	occasion
	previous  string
	set       string            // see setKey
	chains    *source.Candidate // chains with the previous revision, which remains loaded; nil if they cannot be built
	probation *reflection.Probation
}

// beginning is the time at which this virtual node started to use a promoted revision for reflection.
type beginning struct {
	occasion
	since time.Time
	// isOwn reports whether the probation began in this process, which then knows the removals that it has permitted.
	isOwn bool
}

// runningOf returns the revision of a plugin that runs on this virtual node. This is the active revision or, after a
// rollback, the previous one.
func (f *Follower) runningOf(p *plugins.ReflectionPlugin, find func(name string) (*plugins.PluginRevision, error)) activePlugin {
	if f.isRolledBack(p, find) {
		restored := restorePrevious(p)
		a := f.activeOf(restored, find)
		if a.err == nil {
			if p.Status.PreviousUnproven {
				a.promoted = restored
			}
			return a
		}
		f.log.Error("The previous revision cannot be restored, so the one that was rolled back runs on", "plugin", p.Name, "err", a.err)
	}
	a := f.activeOf(p, find)
	a.promoted = p
	return a
}

// restorePrevious returns a plugin whose previous revision is active. If the previous revision is unproven, it is on
// probation as after a promotion, but cannot be rolled back, and removals that its own probation held stay held. The
// number of removals that the settings approve does not apply, because they were approved for the other revision.
func restorePrevious(p *plugins.ReflectionPlugin) *plugins.ReflectionPlugin {
	restored := p.DeepCopy()
	restored.Status.ActiveRevision, restored.Status.PreviousRevision, restored.Status.PreviousUnproven = p.Status.PreviousRevision, "", false
	restored.Spec.Rollout.Rehearsal = nil
	return restored
}

// isRolledBack reports whether the active revision was rolled back on this virtual node. This process may have done so
// or, according to the entry of the virtual node, another replica or an earlier process. The rollback is valid until
// the next promotion.
func (f *Follower) isRolledBack(p *plugins.ReflectionPlugin, find func(name string) (*plugins.PluginRevision, error)) bool {
	if p.Status.PreviousRevision == "" {
		return false
	}
	f.mu.Lock()
	here := f.rolledBack[p.Name] == occasionOf(p)
	f.mu.Unlock()
	if here {
		return true
	}
	revision, err := find(p.Status.ActiveRevision)
	return err == nil && isRollBack(f.entryIn(revision), p)
}

// isRollBack reports whether an entry of the active revision is about a rollback after its present promotion. An
// earlier entry has no effect, because a user has selected the revision again.
func isRollBack(entry *plugins.VirtualNodePlugin, p *plugins.ReflectionPlugin) bool {
	return entry != nil && entry.State == plugins.RolledBackPlugin && (entry.PromotedAt == nil || entry.PromotedAt.Equal(p.Status.PromotedAt))
}

// entryIn returns the entry of this virtual node in a revision, or nil.
func (f *Follower) entryIn(revision *plugins.PluginRevision) *plugins.VirtualNodePlugin {
	i := slices.IndexFunc(revision.Status.VirtualNodes, func(e plugins.VirtualNodePlugin) bool { return e.Name == f.options.NodeName })
	if i < 0 {
		return nil
	}
	return &revision.Status.VirtualNodes[i]
}

// renewProbations observes the revisions that are on probation. It is called before the chains run them, because the
// chains with the previous revisions must be built first, so that the previous revisions remain loaded. It returns the
// time until the first probation ends, or 0 if there is none. The caller holds refreshing.
func (f *Follower) renewProbations(ctx context.Context, active []activePlugin) (left time.Duration) {
	chains, ok := f.options.Chains.(CandidateChains)
	if f.options.Probations == nil || !ok {
		return 0
	}
	next := map[string]*promotion{}
	for i := range active {
		a := &active[i]
		until, hasBegun := f.endOfProbation(a)
		remaining := until.Sub(f.options.Clock.Now())
		if remaining <= 0 {
			continue
		}
		p := f.promotionOf(ctx, chains, active, a, until)
		next[a.name] = p
		left = earlier(left, remaining)
		if !hasBegun || p.chains == nil { // the end is moved before it is reached, or the chains are built again
			left = earlier(left, min(remaining/2, f.options.RetryMost))
		}
	}
	all := make([]*reflection.Probation, 0, len(next))
	for _, name := range slices.Sorted(maps.Keys(next)) {
		all = append(all, next[name].probation)
	}
	f.options.Probations.Replace(all)
	if kinds := f.easedKinds(active, next); len(kinds) > 0 && f.eased != nil {
		f.eased(kinds)
	}
	for name, p := range f.onProbation {
		if next[name] == nil || next[name].chains != p.chains {
			f.ended = append(f.ended, p)
		}
	}
	f.onProbation = next
	return left
}

// minEasedPeriod is the time by which a probation must end earlier than before to count as eased. When a probation begins,
// its end moves by less than a second, because the beginning is truncated to a second. With a shorter time, all held
// objects would be evaluated at each beginning; with a longer one, a small change has no effect on them.
const minEasedPeriod = time.Second

// easedKinds returns the kinds of the objects whose copies are held by a probation that a user has eased: it permits more
// removals than before, or ends earlier. Without an evaluation of these objects, this would have no effect before their
// next attempt, which may be at the former end of the probation. next contains the new promotions.
func (f *Follower) easedKinds(active []activePlugin, next map[string]*promotion) (kinds []string) {
	now := f.options.Clock.Now()
	for i := range active {
		before, after := f.onProbation[active[i].name], next[active[i].name]
		if before == nil || active[i].promoted == nil || before.occasion != occasionOf(active[i].promoted) {
			continue
		}
		former := before.probation
		isShorter := after != nil && former.Until.Sub(after.probation.Until) >= minEasedPeriod
		switch {
		case after == nil && now.Before(former.Until):
			kinds = append(kinds, former.HeldKinds()...)
		case isShorter || after != nil && after.probation.MaxRemoved > former.MaxRemoved:
			kinds = append(kinds, after.probation.HeldKinds()...)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// endOfProbation returns the time at which the probation of a revision ends. It is zero if there is no probation. If
// the probation has not begun, the whole duration is left.
func (f *Follower) endOfProbation(a *activePlugin) (until time.Time, hasBegun bool) {
	if a.promoted == nil || a.promoted.Status.PromotedAt == nil {
		return time.Time{}, false
	}
	probation := pluginrevision.ProbationPeriod(a.promoted)
	if since := f.beginningOf(a); !since.IsZero() {
		return since.Add(probation), true
	}
	return f.options.Clock.Now().Add(probation), false
}

// beginningOf returns the time at which the probation of a revision began on this virtual node. It is zero if the
// probation has not begun. After a restart, the time is read from the entry. The caller holds refreshing.
func (f *Follower) beginningOf(a *activePlugin) time.Time {
	if b := f.begun[a.name]; b.occasion == occasionOf(a.promoted) {
		return b.since
	}
	if e := a.entry; e != nil && e.ActiveSince != nil && e.PromotedAt.Equal(a.promoted.Status.PromotedAt) {
		return e.ActiveSince.Time
	}
	return time.Time{}
}

// hasBegun reports whether the probation of a revision began in this process. The caller holds refreshing.
func (f *Follower) hasBegun(a *activePlugin) bool {
	b := f.begun[a.name]
	return b.isOwn && b.occasion == occasionOf(a.promoted)
}

// beginProbations begins the probations of the promoted revisions that run, as soon as this replica is the leader and
// reaches the provider. If a revision takes effect later, because the provider was unreachable, this virtual kubelet
// was not running or the module was lost, its probation is not shorter. The caller holds refreshing.
func (f *Follower) beginProbations(active []activePlugin) {
	next := map[string]beginning{}
	for i := range active {
		a := &active[i]
		if a.promoted == nil || a.promoted.Status.PromotedAt == nil {
			continue
		}
		b := beginning{occasionOf(a.promoted), f.beginningOf(a), f.hasBegun(a)}
		if b.since.IsZero() && f.known[a.name].running == a.revision && f.leads.Load() && f.options.ReachesProvider() {
			b.since, b.isOwn = f.options.Clock.Now().Truncate(time.Second), true
		}
		if !b.since.IsZero() {
			next[a.name] = b
		}
	}
	f.begun = next
}

// promotionOf returns the promotion of an active revision. It continues an earlier promotion of the same revision. If
// the previous chains cannot be built, all removals are held, and failures are counted.
func (f *Follower) promotionOf(ctx context.Context, chains CandidateChains, active []activePlugin, a *activePlugin, until time.Time) *promotion {
	p := &promotion{occasion: occasionOf(a.promoted), previous: a.promoted.Status.PreviousRevision, set: setKey(active)}
	earlier := f.onProbation[a.name]
	p.chains = f.previousChains(ctx, chains, active, a, earlier)
	o := reflection.ProbationOptions{
		Plugin: a.name, Revision: a.revision, Until: until, Previous: unknownChains{}, MaxFailedPercent: defaultMaxFailedPercent,
		MaxRemoved: f.approvedRemovals(ctx, a), RollBack: func(message string) { f.rollBack(a.promoted, message) },
	}
	if p.chains != nil {
		o.Previous = p.chains.Registry()
	}
	if percent := a.promoted.Spec.Rollout.MaxFailedPercent; percent != nil {
		o.MaxFailedPercent = *percent
	}
	// There is no previous revision, or a user has selected the revision again after it was rolled back.
	if p.previous == "" || a.promoted.Status.IsRejected(a.revision) {
		o.MaxFailedPercent = 100
	}
	p.probation = reflection.NewProbation(o)
	if earlier != nil && earlier.occasion == p.occasion {
		p.probation.Continues(earlier.probation)
	}
	return p
}

// unknownChains replaces the previous chains as long as they cannot be built. Its error holds every removal.
type unknownChains struct{}

// Run implements mutation.Runner. It always fails.
func (unknownChains) Run(context.Context, string, host.Hook, *document.Document, *host.Env) (*host.Outcome, error) {
	return nil, errors.New("the previous revision cannot be loaded")
}

// setKey returns a key that is equal for two lists of plugins if they contain the same plugins in the same revisions
// and order.
func setKey(active []activePlugin) string {
	parts := make([]string, len(active))
	for i := range active {
		parts[i] = active[i].name + "=" + active[i].revision
	}
	return strings.Join(parts, " ")
}

// previousChains returns the chains with the previous revision of a plugin. The chains of an earlier promotion of the
// same revision are reused as long as no other plugin has changed. After such a change they are rebuilt, so that the
// probation does not attribute the effects of the other plugin to this one. If new chains cannot be built,
// previousChains returns the earlier chains, or nil if there are none.
func (f *Follower) previousChains(ctx context.Context, chains CandidateChains, active []activePlugin, a *activePlugin,
	earlier *promotion) *source.Candidate {
	if earlier != nil && (earlier.chains == nil || earlier.revision != a.revision ||
		earlier.previous != a.promoted.Status.PreviousRevision) {
		earlier = nil
	}
	if earlier != nil && earlier.set == setKey(active) && earlier.chains.IsCurrent() {
		return earlier.chains
	}
	built, statuses, err := chains.NewCandidate(ctx, f.declareAll(ctx, f.withPrevious(ctx, active, a)))
	s := statusOf(statuses, a.name)
	switch {
	// A plugin whose previous revision cannot be loaded is held. If another revision runs in its place, it may be the
	// new one, which would then be compared with itself.
	case err == nil && (s == nil || s.Err == nil || earlier == nil && !s.Running):
		return built
	case err == nil:
		err = s.Err
		built.Close(ctx)
	}
	if earlier == nil {
		f.log.Error("No copy is removed during the probation, because the previous revision cannot be loaded",
			"plugin", a.name, "revision", a.revision, "err", err)
		return nil
	}
	return earlier.chains
}

// withPrevious returns the active plugins as they were before the promotion of a.
func (f *Follower) withPrevious(ctx context.Context, active []activePlugin, a *activePlugin) (set []activePlugin) {
	for _, other := range active {
		if other.name != a.name {
			set = append(set, other)
			continue
		}
		if a.promoted.Status.PreviousRevision == "" || a.promoted.Status.PreviousUnproven {
			continue
		}
		before := a.promoted.DeepCopy()
		before.Status.ActiveRevision = before.Status.PreviousRevision
		previous := f.activeOf(before, func(name string) (*plugins.PluginRevision, error) { return f.findRevision(ctx, name) })
		if f.isForProvider(previous.spec.Match) {
			set = append(set, previous)
		}
	}
	return set
}

// approvedRemovals returns the number of copies that the revision may remove by new skips. It is 0 if the probation
// began in another process, because that process may already have removed them.
func (f *Follower) approvedRemovals(ctx context.Context, a *activePlugin) int64 {
	if !f.beginningOf(a).IsZero() && !f.hasBegun(a) {
		return 0
	}
	rehearsal := a.promoted.Spec.Rollout.Rehearsal
	if a.promoted.Spec.Rollout.Strategy == plugins.ImmediateRollout || rehearsal == nil {
		return 0
	}
	approved := int64(rehearsal.MaxRemoved)
	if rehearsal.Approved != a.revision {
		return approved
	}
	if revision, err := f.findRevision(ctx, a.revision); err == nil {
		if entry := f.entryIn(revision); entry != nil && entry.Rehearsal != nil {
			approved = max(approved, entry.Rehearsal.Removed)
		}
	}
	return approved
}

// rollBack restores the previous revision of a plugin on this virtual node, until the next promotion. It does not block.
func (f *Follower) rollBack(p *plugins.ReflectionPlugin, message string) {
	revision, previous := p.Status.ActiveRevision, p.Status.PreviousRevision
	message = printable.Message(message + ". This virtual node goes back to revision " + previous + ", until another revision is active")
	f.log.Error("A plugin was rolled back", "plugin", p.Name, "revision", revision, "previous", previous, "message", message)
	f.mu.Lock()
	f.rolledBack[p.Name] = occasionOf(p)
	f.mu.Unlock()
	f.ReportState(revision, plugins.VirtualNodePlugin{State: plugins.RolledBackPlugin, Reason: FailedInProbationReason, Message: message, PromotedAt: p.Status.PromotedAt})
	if f.leads.Load() {
		f.publishEvent(p.Name, &pluginState{uid: p.UID, revision: revision, reason: FailedInProbationReason, message: message}, corev1.EventTypeWarning)
	}
}

// closeEndedProbations releases the modules of probations that are over. The caller holds refreshing.
func (f *Follower) closeEndedProbations(ctx context.Context) {
	for _, p := range f.ended {
		if p.chains != nil {
			p.chains.Close(ctx)
		}
	}
	f.ended = nil
}
