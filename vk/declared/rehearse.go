// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/printable"
	"github.com/refract-project/refract/vk/reflection"
)

// Reasons of the entries of candidates.
const (
	RehearsedReason       = "Rehearsed"
	RehearsingReason      = "Rehearsing"
	RehearsalFailedReason = "RehearsalFailed"
)

// Rehearsal evaluates the objects of this virtual node with a candidate. If ctx ends, it returns the error of ctx.
type Rehearsal func(ctx context.Context, c reflection.PluginCandidate) (*plugins.PluginRehearsalResult, error)

// candidateKey returns a text that contains everything on which a rehearsal depends, except for the objects.
func candidateKey(c *Candidate) string {
	parts := []string{c.Plugin, c.Revision, c.Active, c.Others, strconv.FormatBool(c.LeadsShared)}
	for i := range c.Plugins {
		parts = append(parts, c.Plugins[i].Name+"="+c.Plugins[i].Revision)
	}
	return strings.Join(parts, " ")
}

// attempts contains the rehearsals of the candidates, keyed by revision.
type attempts map[string]*attempt

// attempt is the rehearsal of one candidate.
type attempt struct {
	key      string // see candidateKey
	isDone   bool   // the result was reported
	failures int
	retryAt  time.Time // the zero value means at once
}

// RunRehearsals rehearses the candidates one after another, and reports the results, until ctx ends. changed must
// receive an element when the set of plugins or the result of LeadsShared has changed. The present rehearsal then ends,
// unless its candidate is unchanged. A failed rehearsal is repeated with growing delays. Rehearsals begin after Lead.
func (f *Follower) RunRehearsals(ctx context.Context, changed <-chan struct{}, rehearse Rehearsal) error {
	chains, ok := f.options.Chains.(CandidateChains)
	if !ok {
		return nil
	}
	all := attempts{}
	for ctx.Err() == nil {
		var retry <-chan time.Time
		if f.leads.Load() {
			candidates, err := f.Candidates(ctx)
			if err != nil {
				f.log.Warn("The candidates of plugins cannot be read", "err", err)
				retry = f.options.Clock.After(f.options.RetryFirst)
			} else {
				f.withdrawOthers(all, candidates)
				c, wait := all.next(candidates, f.options.Clock.Now())
				if c != nil {
					f.attempt(ctx, chains, c, all[c.Revision], changed, rehearse)
					continue
				}
				if wait > 0 {
					retry = f.options.Clock.After(wait)
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-retry:
		}
	}
	return nil
}

// withdrawOthers removes the entries of revisions that are no longer candidates.
func (f *Follower) withdrawOthers(all attempts, candidates []Candidate) {
	current := map[string]bool{}
	for i := range candidates {
		current[candidates[i].Revision] = true
	}
	for revision := range all {
		if !current[revision] {
			delete(all, revision)
			f.withdrawCandidate(revision)
		}
	}
}

// withdrawCandidate removes the entry of a candidate. The entry of a revision that was rolled back is kept.
func (f *Follower) withdrawCandidate(revision string) {
	f.mu.Lock()
	kept := f.others[revision].State == plugins.RolledBackPlugin
	f.mu.Unlock()
	if !kept {
		f.WithdrawState(revision)
	}
}

// next returns the first candidate that must be rehearsed now, for which it ensures an attempt. If there is none, it
// returns the time until the next rehearsal; 0 means never.
func (all attempts) next(candidates []Candidate, now time.Time) (c *Candidate, wait time.Duration) {
	for i := range candidates {
		c := &candidates[i]
		before := all[c.Revision]
		if before == nil || before.key != candidateKey(c) {
			before = &attempt{key: candidateKey(c)}
			all[c.Revision] = before
		}
		left := before.retryAt.Sub(now)
		switch {
		case before.isDone:
		case left <= 0:
			return c, 0
		default:
			wait = earlier(wait, left)
		}
	}
	return nil, wait
}

// errSuperseded ends a rehearsal if its revision is no longer a candidate, or if the other plugins have changed.
var errSuperseded = errors.New("the candidate is another one")

// attempt rehearses a candidate once. If the rehearsal must be repeated, it sets the time.
func (f *Follower) attempt(ctx context.Context, chains CandidateChains, c *Candidate, a *attempt, changed <-chan struct{}, rehearse Rehearsal) {
	var err error
	a.isDone, err = f.rehearseOne(ctx, chains, c, a.failures > 0, changed, rehearse)
	if a.isDone || errors.Is(err, errSuperseded) {
		return
	}
	a.retryAt = f.options.Clock.Now().Add(min(f.options.RetryFirst<<min(a.failures, 10), f.options.RetryMost))
	a.failures++
}

// rehearseOne rehearses a candidate and reports the result. It returns false, and the reason, if the rehearsal must be repeated.
func (f *Follower) rehearseOne(ctx context.Context, chains CandidateChains, c *Candidate, isRepeated bool, changed <-chan struct{}, rehearse Rehearsal) (isDone bool, err error) {
	next, statuses, err := chains.NewCandidate(ctx, c.Plugins)
	if err != nil {
		f.reportCandidate(c, plugins.FailedPlugin, NotLoadedReason, err.Error(), nil)
		return false, err
	}
	defer next.Close(context.WithoutCancel(ctx))
	if s := statusOf(statuses, c.Plugin); s != nil && s.Err != nil {
		state, reason := classifyError(s.Err)
		f.reportCandidate(c, state, reason, s.Err.Error(), nil)
		return isRefused(s.Err), s.Err
	}
	if !isRepeated { // the reason of the last failure is kept until there is a result
		f.reportCandidate(c, plugins.RehearsingPlugin, RehearsingReason, "the objects of this virtual node are being evaluated", nil)
	}
	result, err := f.untilChanged(ctx, c, changed, func(ctx context.Context) (*plugins.PluginRehearsalResult, error) {
		return rehearse(ctx, reflection.PluginCandidate{Plugin: c.Plugin, Against: c.Active, Kinds: kindsOf(next.Changed()), Declared: c.Declared, Next: next.Registry()})
	})
	switch {
	case ctx.Err() != nil, errors.Is(err, errSuperseded):
		return false, err
	case err != nil:
		f.reportCandidate(c, plugins.RehearsingPlugin, RehearsalFailedReason, err.Error()+"; it is repeated", nil)
		return false, err
	}
	result.OtherRevisions = c.Others
	f.reportCandidate(c, plugins.StandbyPlugin, RehearsedReason,
		fmt.Sprintf("%d objects were evaluated: %d copies would change, %d would be removed, %d would fail", result.Objects,
			result.Changed, result.Removed, result.Errors), limitDetails(result))
	return true, nil
}

func (f *Follower) reportCandidate(c *Candidate, state plugins.PluginState, reason, message string, result *plugins.PluginRehearsalResult) {
	entry := plugins.VirtualNodePlugin{State: state, Reason: reason, Message: printable.Message(withoutClientAddress(message)),
		Rehearsal: result}
	if f.ReportState(c.Revision, entry) {
		f.log.Info("Candidate of a plugin", "plugin", c.Plugin, "revision", c.Revision, "state", state, "reason", reason, "message", message)
	}
}

// untilChanged calls evaluate, and ends it if the candidate is replaced. The error is then errSuperseded.
func (f *Follower) untilChanged(ctx context.Context, c *Candidate, changed <-chan struct{}, evaluate func(context.Context) (*plugins.PluginRehearsalResult, error)) (result *plugins.PluginRehearsalResult, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result, err = evaluate(ctx)
	}()
	for {
		select {
		case <-ended:
			return result, err
		case <-changed:
		}
		candidates, failure := f.Candidates(ctx)
		same := failure != nil
		for i := range candidates {
			same = same || candidateKey(&candidates[i]) == candidateKey(c)
		}
		if !same {
			cancel()
			<-ended
			return nil, errSuperseded
		}
	}
}

func statusOf(statuses []source.Status, plugin string) *source.Status {
	for i := range statuses {
		if statuses[i].Name == plugin {
			return &statuses[i]
		}
	}
	return nil
}

func kindsOf(keys []host.ChainKey) (kinds []string) {
	for _, key := range keys {
		kinds = append(kinds, key.Kind)
	}
	return kinds
}
