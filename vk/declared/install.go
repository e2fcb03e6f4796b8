// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/eventrecorder"
	"github.com/refract-project/refract/internal/pluginrevision"
	"github.com/refract-project/refract/internal/printable"
)

// Chains runs plugins. *source.Chains implements it.
type Chains interface {
	// Declare replaces the set of declared plugins at once. It returns the status of each plugin, in the same order.
	Declare(ctx context.Context, plugins []source.Declared) []source.Status
}

// Reasons of the states of revisions, and of Events on the ReflectionPlugin.
const (
	RunningReason         = "Running"
	NotReflectedReason    = "NotReflected"
	UnreadableReason      = "Unreadable"
	MissingRevisionReason = "RevisionMissing"
	MissingModuleReason   = "ModuleMissing"
	DigestMismatchReason  = "DigestMismatch"
	NotLoadedReason       = "NotLoaded"
)

// pluginState is the state of an active revision on this virtual node.
type pluginState struct {
	uid      types.UID
	revision string
	state    plugins.PluginState
	reason   string
	message  string
	failures int
	retryAt  time.Time // the zero value means never
	told     bool      // an Event has reported this state
	running  string    // revision that runs; empty if none runs
}

// installPlugins passes the active revisions to the chains, and returns the delay until the next attempt; 0 means
// never.
func (f *Follower) installPlugins(ctx context.Context, active []activePlugin) (retry time.Duration) {
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	set := f.declareAll(ctx, active)
	retry = f.renewProbations(ctx, active)
	f.selectors.renew()
	statuses := f.options.Chains.Declare(ctx, set)
	if ctx.Err() != nil {
		return 0
	}
	now, next := f.options.Clock.Now(), map[string]*pluginState{}
	for i := range active {
		state := f.stateOf(&active[i], &statuses[i], f.known[active[i].name])
		next[active[i].name] = state
		if !state.retryAt.IsZero() {
			retry = earlier(retry, max(state.retryAt.Sub(now), 1))
		}
	}
	f.tellChanges(f.known, next)
	f.known = next
	f.publishStatuses(statuses)
	f.beginProbations(active)
	f.closeEndedProbations(ctx)
	return retry
}

// publishStatuses stores the result of the method Statuses.
func (f *Follower) publishStatuses(statuses []source.Status) {
	for i := range statuses {
		statuses[i].Revision = f.known[statuses[i].Name].running
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses = statuses
}

// stateOf returns the state of an active revision after it was passed to the chains.
func (f *Follower) stateOf(a *activePlugin, s *source.Status, before *pluginState) *pluginState {
	state := &pluginState{uid: a.uid, revision: a.revision, running: a.revision, state: plugins.ActivePlugin, reason: RunningReason}
	switch {
	case s.Err == nil && s.Running:
		state.message = "it runs for " + strings.Join(s.Kinds, ", ")
		if len(s.Warnings) > 0 {
			state.message += "; warning: " + strings.Join(s.Warnings, "; ")
		}
	case s.Err == nil:
		state.reason, state.message = NotReflectedReason, "no reflected kind is among its kinds"
	default:
		state.state, state.reason = classifyError(s.Err)
		state.message = s.Err.Error() + describeEffect(a, s)
		state.running = ""
		if before != nil && s.Running {
			state.running = before.running
		}
		f.scheduleRetry(state, s.Err, before)
	}
	state.message = printable.Message(withoutClientAddress(state.message))
	if before != nil && before.uid == state.uid && before.revision == state.revision && before.reason == state.reason && before.message == state.message {
		state.told = before.told
	}
	return state
}

// clientAddress matches the client's address in a connection error. The port in the address is different in each
// attempt.
var clientAddress = regexp.MustCompile(`\S+:\d+->`)

// withoutClientAddress removes the part of a message that is different in each attempt. Otherwise, each attempt would
// write an entry and an Event.
func withoutClientAddress(message string) string { return clientAddress.ReplaceAllString(message, "") }

// scheduleRetry sets the time of the next attempt to use the revision, unless its module would be rejected again.
func (f *Follower) scheduleRetry(state *pluginState, err error, before *pluginState) {
	if isRefused(err) {
		return
	}
	if before != nil && before.revision == state.revision {
		state.failures = before.failures
	}
	delay := min(f.options.RetryFirst<<min(state.failures, 10), f.options.RetryMost)
	state.failures++
	state.retryAt = f.options.Clock.Now().Add(delay)
}

// isRefused reports whether a module would be rejected in every attempt.
func isRefused(err error) bool {
	var refused *host.LoadError
	return errors.As(err, &refused) && !host.IsTransient(err)
}

// classifyError returns the state and the reason for a revision that does not run.
func classifyError(err error) (plugins.PluginState, string) {
	var (
		gone     *revisionError
		missing  *pluginrevision.MissingError
		damaged  *pluginrevision.DamagedError
		answered apierrors.APIStatus
		network  net.Error
	)
	switch {
	case errors.As(err, &gone):
		return plugins.FailedPlugin, MissingRevisionReason
	case errors.As(err, &missing):
		return plugins.FailedPlugin, MissingModuleReason
	case errors.As(err, &damaged):
		return plugins.FailedPlugin, DigestMismatchReason
	case errors.As(err, &answered), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return plugins.LoadingPlugin, UnreadableReason
	}
	return plugins.FailedPlugin, NotLoadedReason
}

// describeEffect returns the effect of a failure on objects, and the remedy.
func describeEffect(a *activePlugin, s *source.Status) string {
	effect := ""
	switch {
	case len(s.Held) > 0:
		effect = "; nothing is written or deleted for objects of " + strings.Join(s.Held, ", ") + " that it selects"
	case s.Running:
		effect = fmt.Sprintf("; version %s, which ran before, runs on", s.Version)
	case a.spec.FailurePolicy == plugins.IgnorePluginPolicy:
		effect = "; by its failure policy, objects are reflected without it"
	}
	var (
		missing *pluginrevision.MissingError
		damaged *pluginrevision.DamagedError
	)
	if isRefused(s.Err) {
		effect += ". Run refractctl plugin rollback " + a.name + ", or publish a module that loads"
	}
	if errors.As(s.Err, &missing) || errors.As(s.Err, &damaged) {
		effect += ". The controller manager stores the module again from its source: see the condition Fetched, or set spec.revision to another PluginRevision"
	}
	return effect
}

// tellChanges reports changed states in the log and, while this replica is the leader, in Events about the
// ReflectionPlugins.
func (f *Follower) tellChanges(before, now map[string]*pluginState) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		s, was := now[name], before[name]
		isChanged := was == nil || was.revision != s.revision || was.reason != s.reason || was.message != s.message
		if isChanged {
			f.log.Info("State of a plugin", "plugin", name, "origin", source.OriginDeclared, "revision", s.revision, "state", s.state, "reason", s.reason, "message", s.message)
		}
		if s.told || !f.leads.Load() {
			continue
		}
		s.told = true
		switch {
		case s.state != plugins.ActivePlugin:
			f.publishEvent(name, s, corev1.EventTypeWarning)
		case was != nil && was.told && was.state != plugins.ActivePlugin:
			f.publishEvent(name, s, corev1.EventTypeNormal)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] == nil {
			f.log.Info("A declared plugin was removed", "plugin", name, "revision", before[name].revision)
		}
	}
}

// publishEvent reports the state of a revision in an Event about its ReflectionPlugin.
func (f *Follower) publishEvent(name string, s *pluginState, eventType string) {
	about := &corev1.ObjectReference{APIVersion: plugins.GroupVersion.String(), Kind: plugins.ReflectionPluginKind, Name: name, UID: s.uid}
	message := fmt.Sprintf("revision %s on virtual node %s: %s", s.revision, f.options.NodeName, s.message)
	f.options.Events.Event(about, eventType, s.reason, eventrecorder.Shorten(message))
}
