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
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/pluginsource"
	"github.com/refract-project/refract/internal/pluginsource/signature"
)

const (
	minRetryDelay = 10 * time.Second
	maxRetryDelay = 10 * time.Minute
)

// retryDelay returns the delay after so many failures, without its random part.
func retryDelay(failures int32) time.Duration {
	return min(minRetryDelay<<min(max(failures-1, 0), 10), maxRetryDelay)
}

// errNotStored is returned if a module is needed that was fetched before, and is not stored.
var errNotStored = errors.New("the module is not stored")

// follow makes the module of the source the candidate revision, and reports whether it is accepted now.
func (c *Controller) follow(ctx context.Context, p *plugins.ReflectionPlugin) (isAccepted bool, again time.Duration, err error) {
	decision, err := c.decide(p)
	if err != nil {
		again, err := c.stop(p, err)
		return false, again, err
	}
	known := sourceStatus(p, decision)
	m := &module{digest: known.SHA256, resolved: known.Resolved, signer: known.Signer}
	acquire, release := c.fetching.hold()
	defer release()
	if again = min(c.untilNextTry(p, known), c.options.Recheck); again <= 0 {
		obtained, err := c.obtain(ctx, p, m, decision, acquire)
		if err == nil {
			m, again = obtained, c.untilResolved(p)
		} else if again, err = c.stop(p, err); err != nil {
			return false, again, err
		}
	}
	if m.digest == "" {
		return false, again, nil
	}
	// A source that fails does not keep the module that it had, which is stored, from getting other settings.
	revision, err := c.accept(ctx, p, m)
	if errors.Is(err, errNotStored) {
		known.SHA256, known.Resolved, known.Signer = "", "", ""
		release()
		return c.follow(ctx, p)
	}
	if err != nil {
		_, err := c.stop(p, &stepError{plugins.AcceptedCondition, err})
		return false, again, err
	}
	c.setPassed(p, plugins.AcceptedCondition, metav1.ConditionTrue, acceptedReason, "revision "+revision.Name+" loads with these settings")
	p.Status.CandidateRevision = ""
	if revision.Name != p.Status.ActiveRevision {
		p.Status.CandidateRevision = revision.Name
	}
	return true, again, nil
}

// sourceStatus returns the status of the source, a new one if the source or the policy has changed.
func sourceStatus(p *plugins.ReflectionPlugin, decision signature.Decision) *plugins.PluginSourceStatus {
	text, _ := json.Marshal(p.Spec.Source) // it came as JSON
	sum := sha256.Sum256(append(text, decision.Fingerprint()...))
	if fingerprint := hex.EncodeToString(sum[:16]); p.Status.Source == nil || p.Status.Source.Fingerprint != fingerprint {
		p.Status.Source = &plugins.PluginSourceStatus{Fingerprint: fingerprint}
	}
	return p.Status.Source
}

// untilNextTry returns how long to wait after a failure. ConfigMaps are watched, and read each time.
func (c *Controller) untilNextTry(p *plugins.ReflectionPlugin, known *plugins.PluginSourceStatus) time.Duration {
	if known.NextTry == nil || p.Spec.Source.ConfigMap != nil {
		return 0
	}
	return known.NextTry.Sub(c.options.Clock.Now())
}

// obtain returns the module that the source has now, verified. before is the module that it had, without a digest if that is not known. obtain calls
// acquire before it fetches a module from a server.
func (c *Controller) obtain(ctx context.Context, p *plugins.ReflectionPlugin, before *module, decision signature.Decision, acquire func(context.Context) error) (*module, error) {
	m, err := c.fetch(ctx, p, before, acquire)
	if err != nil {
		return nil, &stepError{plugins.FetchedCondition, err}
	}
	c.setPassed(p, plugins.FetchedCondition, metav1.ConditionTrue, fetchedReason, fmt.Sprintf("fetched %s, sha256 %s", m.resolved, m.digest))
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

// stepError is an error of a step, whose condition reports it.
type stepError struct {
	condition string
	err       error
}

func (e *stepError) Error() string { return e.err.Error() }

func (e *stepError) Unwrap() error { return e.err }

// refusal is an error that trying again does not end.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

func refusef(reason, format string, args ...any) error {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// stop reports why a plugin gets no further, and returns when to try again. An error is one of the API server, or of this machine.
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
	// The policy is read each time, and what was refused is remembered: neither asks the source again.
	if step.condition != plugins.AcceptedCondition && reason != invalidPolicyReason {
		again = min(c.retryLater(p), c.options.Recheck)
		message += fmt.Sprintf("; next try at %s", p.Status.Source.NextTry.UTC().Format(time.RFC3339))
	}
	c.setFailed(p, step.condition, metav1.ConditionFalse, reason, message)
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

// setUnreached sets the conditions of the steps behind a failed one to Unknown, unless they are about a module that the source had before.
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

// setPassed sets a condition whose step was passed.
func (c *Controller) setPassed(p *plugins.ReflectionPlugin, kind string, status metav1.ConditionStatus, reason, message string) {
	setCondition(p, kind, status, reason, message)
}

// setFailed sets a condition, and reports it with an Event when it is another one than before.
func (c *Controller) setFailed(p *plugins.ReflectionPlugin, kind string, status metav1.ConditionStatus, reason, message string) {
	before := apimeta.FindStatusCondition(p.Status.Conditions, kind)
	if before == nil || before.Status != status || before.Reason != reason || before.ObservedGeneration != p.Generation {
		c.report.Clear(client.ObjectKeyFromObject(p))
		c.report.Warn(p, reason, actions[kind], message)
	}
	setCondition(p, kind, status, reason, message)
}

// actions are those of the Events about a condition.
var actions = map[string]string{plugins.FetchedCondition: "Fetch", plugins.VerifiedCondition: "Verify", plugins.AcceptedCondition: "Accept", plugins.ReadyCondition: "Promote"}

// untilResolved returns after which time to look again: at the next resolution of a tag, or to recheck.
func (c *Controller) untilResolved(p *plugins.ReflectionPlugin) time.Duration {
	last, ok := c.resolved.Load(p.Name)
	interval := intervalOf(p)
	if interval == 0 || !ok {
		return c.options.Recheck
	}
	return min(max(interval-c.options.Clock.Since(last.(time.Time)), time.Millisecond), c.options.Recheck)
}

// intervalOf returns the interval at which a tag is resolved; 0 is never again.
func intervalOf(p *plugins.ReflectionPlugin) time.Duration {
	if oci := p.Spec.Source.OCI; oci != nil && oci.Interval != nil {
		return oci.Interval.Duration
	}
	return 0
}
