// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/pluginsource"
	"github.com/refract-project/refract/internal/pluginsource/signature"
)

const (
	// minRetryDelay and maxRetryDelay bound the delay after a failed fetch. With longer delays, a plugin is updated
	// later after its registry has recovered. Shorter delays burden a registry that has problems.
	minRetryDelay = 10 * time.Second
	maxRetryDelay = 10 * time.Minute
	// contactInterval is the delay before the next attempt while too many other plugins wait for their servers. With a longer
	// interval, a plugin is fetched later.
	contactInterval = time.Second
	// minFetchDelay is the delay before a fetch that is overdue. It must not be 0, because 0 means that no fetch is
	// planned.
	minFetchDelay = time.Millisecond
)

// retryDelay returns the delay after a number of failures, without its random part.
func retryDelay(failures int32) time.Duration {
	return min(minRetryDelay<<min(max(failures-1, 0), 10), maxRetryDelay)
}

// errNotStored is returned for a module that is neither stored nor in memory.
var errNotStored = errors.New("the module is not stored")

// follow makes the module of the source the candidate revision, and returns the name of this revision, or an empty name
// if no module is accepted now.
func (c *Controller) follow(ctx context.Context, p *plugins.ReflectionPlugin) (accepted string, again time.Duration, err error) {
	decision, err := c.readDecision(p)
	if err != nil {
		again, err := c.stop(p, err)
		return "", again, err
	}
	last := p.Status.Source
	known := sourceStatus(p, decision)
	isChanged := known != last
	m := &module{digest: known.SHA256, resolved: known.Resolved, signer: known.Signer}
	acquire, release := c.fetching.hold()
	defer release()
	again = min(c.untilNextTry(p, known), c.options.Recheck)
	end, isFree := func() {}, true
	if again <= 0 {
		end, isFree = c.contact(p, m)
	}
	defer end()
	switch {
	case again > 0:
	case !isFree && m.digest == "":
		p.Status.Source = last // so that the next attempt knows that the source has changed
		return "", contactInterval, nil
	case !isFree:
		again = contactInterval
	default:
		fetching, endFetch := c.watchDuringFetch(ctx, p)
		obtained, err := c.obtain(fetching, p, m, decision, acquire)
		endFetch()
		end()
		switch {
		case err == nil:
			m, again = obtained, c.untilResolved(p)
		case errors.Is(context.Cause(fetching), errInterrupted):
			p.Status.Source = last
			return "", interruptInterval, nil
		default:
			if again, err = c.stop(p, err); err != nil {
				return "", again, err
			}
			if isChanged {
				dropCandidate(p)
			}
		}
	}
	if m.digest == "" {
		return "", again, nil
	}
	// The settings are applied to the stored module even while the source fails.
	revision, err := c.accept(ctx, p, m)
	if errors.Is(err, errNotStored) {
		known.SHA256, known.Resolved, known.Signer = "", "", ""
		release()
		return c.follow(ctx, p)
	}
	if err != nil {
		if _, err = c.stop(p, &stepError{plugins.AcceptedCondition, err}); err == nil {
			dropCandidate(p)
		}
		return "", again, err
	}
	setCondition(p, plugins.AcceptedCondition, metav1.ConditionTrue, acceptedReason, "revision "+revision.Name+" loads with these settings"+describeLeftOut(p.Spec.Kinds, &revision.Spec.Manifest))
	p.Status.CandidateRevision = ""
	if revision.Name != p.Status.ActiveRevision {
		p.Status.CandidateRevision = revision.Name
	}
	return revision.Name, again, nil
}

// contact reserves the right to wait for the server of a source until end is called, which may happen more than once. isFree is false
// while others have all of these rights. Sources whose module is known, and ConfigMaps, need none.
func (c *Controller) contact(p *plugins.ReflectionPlugin, known *module) (end func(), isFree bool) {
	if p.Spec.Source.ConfigMap != nil || known.digest != "" && (p.Spec.Source.OCI == nil || !c.isResolutionDue(p)) {
		return func() {}, true
	}
	if !c.contacts.tryAcquire() {
		if known.digest == "" {
			setCondition(p, plugins.FetchedCondition, metav1.ConditionUnknown, waitingReason,
				fmt.Sprintf("waiting for the end of other fetches: %d plugins wait for their servers", maxContacts))
		}
		return func() {}, false
	}
	return sync.OnceFunc(c.contacts.release), true
}

// dropCandidate removes the candidate of an earlier source or of earlier settings after the present ones were not accepted.
// Otherwise it would wait for an approval that has no effect.
func dropCandidate(p *plugins.ReflectionPlugin) {
	if p.Status.CandidateRevision == "" {
		return
	}
	p.Status.CandidateRevision = ""
	if isRehearsalOpen(p) {
		setCondition(p, plugins.RehearsedCondition, metav1.ConditionUnknown, noCandidateReason,
			"there is no candidate, because the present source or settings were not accepted: see the conditions Fetched, Verified and Accepted")
	}
}

// sourceStatus returns the status of the source. It is reset if the source or the policy has changed.
func sourceStatus(p *plugins.ReflectionPlugin, decision signature.Decision) *plugins.PluginSourceStatus {
	text, _ := json.Marshal(p.Spec.Source) // this cannot fail, because the source was decoded from JSON
	sum := sha256.Sum256(append(text, decision.Fingerprint()...))
	if fingerprint := hex.EncodeToString(sum[:16]); p.Status.Source == nil || p.Status.Source.Fingerprint != fingerprint {
		p.Status.Source = &plugins.PluginSourceStatus{Fingerprint: fingerprint}
	}
	return p.Status.Source
}

// untilNextTry returns the time until the next attempt after a failure. A ConfigMap is read in each reconciliation,
// because it is watched.
func (c *Controller) untilNextTry(p *plugins.ReflectionPlugin, known *plugins.PluginSourceStatus) time.Duration {
	if known.NextTry == nil || p.Spec.Source.ConfigMap != nil {
		return 0
	}
	return known.NextTry.Sub(c.options.Clock.Now())
}

// obtain fetches and verifies the present module of the source. before is the module of the last fetch. Its digest is
// empty if there was no fetch yet. obtain calls acquire before it downloads a module from a server.
func (c *Controller) obtain(ctx context.Context, p *plugins.ReflectionPlugin, before *module, decision signature.Decision, acquire func(context.Context) error) (*module, error) {
	m, err := c.fetch(ctx, p, before, acquire)
	if err != nil {
		return nil, &stepError{plugins.FetchedCondition, err}
	}
	setCondition(p, plugins.FetchedCondition, metav1.ConditionTrue, fetchedReason, fmt.Sprintf("fetched %s, sha256 %s", m.resolved, m.digest))
	if m.isFresh() {
		signer, err := c.verify(ctx, p, m, decision)
		if err != nil {
			return nil, &stepError{plugins.VerifiedCondition, err}
		}
		m.signer = signer
	}
	if m.isResolved {
		c.resolved.Store(p.Name, c.options.Clock.Now())
	}
	known := p.Status.Source
	known.Resolved, known.SHA256, known.Signer = m.resolved, m.digest, m.signer
	known.Failures, known.NextTry = 0, nil
	return m, nil
}

// stepError is an error that the condition of its step reports.
type stepError struct {
	condition string
	err       error
}

func (e *stepError) Error() string { return e.err.Error() }

func (e *stepError) Unwrap() error { return e.err }

// refusal is an error that a retry without a change does not resolve.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

func refusef(reason, format string, args ...any) error {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// stop reports the error of a step in its condition, and returns the time until the next attempt. Errors from the API
// server and from this machine are returned instead.
func (c *Controller) stop(p *plugins.ReflectionPlugin, err error) (again time.Duration, _ error) {
	var (
		step    *stepError
		refused *refusal
		source  *pluginsource.Error
	)
	if !errors.As(err, &step) {
		return 0, err
	}
	reason := ""
	switch {
	case errors.As(err, &refused):
		reason = refused.reason
	case errors.As(err, &source):
		reason = string(source.Reason)
	default:
		return 0, err
	}
	message := err.Error()
	again = c.options.Recheck
	// An invalid policy or a refused module is no reason to contact the source.
	if step.condition != plugins.AcceptedCondition && reason != invalidPolicyReason {
		again = min(c.retryLater(p), c.options.Recheck)
		message += fmt.Sprintf("; next try at %s", p.Status.Source.NextTry.UTC().Format(time.RFC3339))
	}
	c.failCondition(p, step.condition, reason, message)
	c.setUnreached(p, step.condition)
	return again, nil
}

// retryLater counts a failure, and returns the delay until the next attempt.
func (c *Controller) retryLater(p *plugins.ReflectionPlugin) time.Duration {
	if p.Status.Source == nil {
		p.Status.Source = &plugins.PluginSourceStatus{}
	}
	p.Status.Source.Failures++
	delay := retryDelay(p.Status.Source.Failures)
	delay += rand.N(delay/10 + 1)
	p.Status.Source.NextTry = &metav1.Time{Time: c.options.Clock.Now().Add(delay).Truncate(time.Second)}
	return delay
}

// setUnreached sets the conditions of the steps after a failed step, unless they are about an earlier module of the
// source.
func (c *Controller) setUnreached(p *plugins.ReflectionPlugin, failed string) {
	isOfSource := apimeta.FindStatusCondition(p.Status.Conditions, failed).Reason != invalidPolicyReason
	if isOfSource && p.Status.Source != nil && p.Status.Source.SHA256 != "" {
		return
	}
	switch failed {
	case plugins.FetchedCondition:
		setCondition(p, plugins.VerifiedCondition, metav1.ConditionUnknown, notFetchedReason, "the module was not fetched")
		setCondition(p, plugins.AcceptedCondition, metav1.ConditionUnknown, notFetchedReason, "the module was not fetched")
	case plugins.VerifiedCondition:
		setCondition(p, plugins.AcceptedCondition, metav1.ConditionFalse, notVerifiedReason, "the module is not accepted without a signature, see the condition Verified")
	}
}

// failCondition sets a condition to False, and writes a Warning Event if its reason or the generation of the plugin has changed.
func (c *Controller) failCondition(p *plugins.ReflectionPlugin, kind, reason, message string) {
	before := apimeta.FindStatusCondition(p.Status.Conditions, kind)
	if before == nil || before.Status != metav1.ConditionFalse || before.Reason != reason || before.ObservedGeneration != p.Generation {
		c.report.Clear(client.ObjectKeyFromObject(p))
		c.report.Warn(p, reason, actions[kind], message)
	}
	setCondition(p, kind, metav1.ConditionFalse, reason, message)
}

// actions contains the action of the Events about each condition.
var actions = map[string]string{
	plugins.FetchedCondition: "Fetch", plugins.VerifiedCondition: "Verify", plugins.AcceptedCondition: "Accept",
	plugins.RehearsedCondition: "Rehearse", plugins.ReadyCondition: "Promote",
}

// untilResolved returns the time until the next resolution of the tag, at most the recheck interval.
func (c *Controller) untilResolved(p *plugins.ReflectionPlugin) time.Duration {
	last, ok := c.resolved.Load(p.Name)
	interval := intervalOf(p)
	if interval == 0 || !ok {
		return c.options.Recheck
	}
	return min(max(interval-c.options.Clock.Since(last.(time.Time)), minFetchDelay), c.options.Recheck)
}

// intervalOf returns the interval at which the tag is resolved again, or 0 if it is resolved only once.
func intervalOf(p *plugins.ReflectionPlugin) time.Duration {
	if oci := p.Spec.Source.OCI; oci != nil && oci.Interval != nil {
		return oci.Interval.Duration
	}
	return 0
}
