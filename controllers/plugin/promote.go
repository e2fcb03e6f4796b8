// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/pluginsource/signature"
)

// promote decides which revision is active, and sets the conditions Rehearsed and Ready. accepted is the revision of
// the present source and settings. It is empty if no module is accepted now. promote returns the time until the next
// decision, or 0 if it only waits for changes.
//
// The decision depends only on the plugin, its revisions and the virtual nodes, so that a restarted controller manager
// makes the same decision.
func (c *Controller) promote(ctx context.Context, p *plugins.ReflectionPlugin, accepted string) (again time.Duration, err error) {
	nodes, err := listVirtualNodes(ctx, c.client)
	if err != nil {
		return 0, err
	}
	forgetOverruled(p)
	next := p.Status.ActiveRevision
	err = c.rollBack(ctx, p, nodes)
	if err == nil && p.Status.ActiveRevision == next {
		if next, again, err = c.chooseRevision(ctx, p, accepted, nodes); err == nil && next != p.Status.ActiveRevision {
			err = c.promoteRevision(ctx, p, next, nodes)
		}
	}
	var refused *refusal
	if err != nil && !errors.As(err, &refused) {
		return 0, err
	}
	observeCondition(p, plugins.RehearsedCondition)
	return again, c.setReady(ctx, p, nodes, refused)
}

// chooseRevision returns the desired active revision, and the time until the next decision, or 0 if it only waits for
// changes.
func (c *Controller) chooseRevision(ctx context.Context, p *plugins.ReflectionPlugin, accepted string, nodes []virtualNode) (next string, again time.Duration, err error) {
	active := p.Status.ActiveRevision
	switch {
	case p.Spec.Paused:
		return active, 0, nil
	case p.Spec.Revision != "" && isChosen(p, p.Spec.Revision):
		p.Status.CandidateRevision = ""
		if p.Spec.Revision != active || isRehearsalOpen(p) {
			setCondition(p, plugins.RehearsedCondition, metav1.ConditionUnknown, pinnedReason, fmt.Sprintf("spec.revision names revision %s, which needs no rehearsal", p.Spec.Revision))
		}
		return p.Spec.Revision, 0, nil
	case p.Spec.Revision != "" || accepted == "":
		return active, 0, nil
	case accepted == active:
		setNoCandidate(p)
		return active, 0, nil
	case p.Status.IsRejected(accepted) && !isChosen(p, accepted):
		p.Status.CandidateRevision = ""
		c.setRejected(p, accepted)
		return active, 0, nil
	case isChosen(p, accepted):
		setCondition(p, plugins.RehearsedCondition, metav1.ConditionTrue, approvedReason, fmt.Sprintf("spec.rollout.rehearsal.approved names revision %s", accepted))
		return accepted, 0, nil
	case p.Spec.Rollout.Strategy == plugins.ImmediateRollout:
		setCondition(p, plugins.RehearsedCondition, metav1.ConditionUnknown, notRequiredReason, fmt.Sprintf("revision %s needs no rehearsal, spec.rollout.strategy is Immediate", accepted))
		return accepted, 0, nil
	}
	return c.rehearse(ctx, p, accepted, nodes)
}

// isRehearsalOpen reports whether the condition Rehearsed is about a revision that has not become active.
func isRehearsalOpen(p *plugins.ReflectionPlugin) bool {
	c := apimeta.FindStatusCondition(p.Status.Conditions, plugins.RehearsedCondition)
	return c != nil && (c.Status == metav1.ConditionFalse || c.Reason == rehearsingReason)
}

// setNoCandidate sets the condition Rehearsed after a change was taken back, so that the present source and settings are
// those of the active revision. Otherwise the condition would report a revision that nobody wants any more, and its
// alert would never end. A condition that says why the active revision became active is kept, except for a pin that
// was removed.
func setNoCandidate(p *plugins.ReflectionPlugin) {
	c := apimeta.FindStatusCondition(p.Status.Conditions, plugins.RehearsedCondition)
	if isRehearsalOpen(p) || c != nil && c.Reason == pinnedReason {
		setCondition(p, plugins.RehearsedCondition, metav1.ConditionUnknown, noCandidateReason,
			fmt.Sprintf("there is no candidate: revision %s, which is active, has the present source and settings",
				p.Status.ActiveRevision))
	}
}

// isChosen reports whether a user has named the revision. A choice from before its rejection does not count.
func isChosen(p *plugins.ReflectionPlugin, revision string) bool {
	return isNamed(p, revision) && p.Status.OverruledRevision != revision
}

// isNamed reports whether spec.revision or spec.rollout.rehearsal.approved names the revision.
func isNamed(p *plugins.ReflectionPlugin, revision string) bool {
	rehearsal := p.Spec.Rollout.Rehearsal
	return p.Spec.Revision == revision || rehearsal != nil && rehearsal.Approved == revision
}

// rehearse returns the candidate if its rehearsal permits its promotion, and the active revision otherwise.
func (c *Controller) rehearse(ctx context.Context, p *plugins.ReflectionPlugin, name string, nodes []virtualNode) (next string, again time.Duration, err error) {
	active := p.Status.ActiveRevision
	candidate, err := c.getRevision(ctx, name)
	if err != nil {
		return active, 0, err
	}
	running, err := c.getRevision(ctx, active)
	if err != nil {
		return active, 0, err
	}
	if candidate == nil {
		// The revision is not in the cache yet. The watch triggers the next reconciliation as soon as it is.
		setCondition(p, plugins.RehearsedCondition, metav1.ConditionUnknown, rehearsingReason, fmt.Sprintf("revision %s is being rehearsed", name))
		return active, 0, nil
	}
	others, err := c.readOthers(ctx, p)
	if err != nil {
		return active, 0, err
	}
	rehearsal := gatherRehearsal(candidate, active, others, selectNodes(nodes, candidate, running), c.options.Clock.Now())
	result := rehearsal.judge(p)
	if result.status == metav1.ConditionFalse {
		c.failCondition(p, plugins.RehearsedCondition, result.reason, result.message)
		return active, rehearsal.recheckAfter, nil
	}
	if result.status == metav1.ConditionTrue {
		isPermitted, err := c.takeTurn(ctx, p, others)
		if err != nil {
			return active, 0, err
		}
		if !isPermitted {
			setCondition(p, plugins.RehearsedCondition, metav1.ConditionUnknown, rehearsingReason,
				fmt.Sprintf("revision %s waits for the promotion of another plugin", name))
			return active, turnInterval, nil
		}
		active = name
	}
	setCondition(p, plugins.RehearsedCondition, result.status, result.reason, result.message)
	return active, rehearsal.recheckAfter, nil
}

// takeTurn reports whether a rehearsed candidate may become active now, which is the case if no other candidate is
// becoming active, and the active revisions of the other plugins are the same as in its rehearsal.
func (c *Controller) takeTurn(ctx context.Context, p *plugins.ReflectionPlugin, others string) (bool, error) {
	if !c.promoting.take(p.Name) {
		return false, nil
	}
	now, err := c.readOthers(ctx, p)
	return now == others, err
}

// getRevision returns a revision from the cache, or nil if the cache does not have it.
func (c *Controller) getRevision(ctx context.Context, name string) (*plugins.PluginRevision, error) {
	if name == "" {
		return nil, nil
	}
	revision := &plugins.PluginRevision{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, revision); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("getting PluginRevision %s, %w", name, err)
	}
	return revision, nil
}

// promoteRevision makes a revision active that a rollout, or a user, has chosen. It refuses a revision with kinds that
// its module does not support, or that this cluster does not serve. Such a revision is stored nevertheless, because a
// CRD may be installed later.
func (c *Controller) promoteRevision(ctx context.Context, p *plugins.ReflectionPlugin, name string, nodes []virtualNode) error {
	chosen, err := c.getRevision(ctx, name)
	if err != nil {
		return err
	}
	if chosen != nil {
		if err := c.checkKinds(chosen.Spec.Kinds, &chosen.Spec.Manifest); err != nil {
			return err
		}
	}
	isProven, err := c.isProven(ctx, p, nodes)
	if err != nil {
		return err
	}
	return c.activate(ctx, p, name, isProven)
}

// activate makes a revision active. See replaceActive for isProven. It refuses a revision that does not exist, belongs
// to another plugin, has lost its module, or is not signed as the policy of signatures requires.
func (c *Controller) activate(ctx context.Context, p *plugins.ReflectionPlugin, name string, isProven bool) error {
	revision := &plugins.PluginRevision{}
	err := c.live.Get(ctx, client.ObjectKey{Name: name}, revision)
	switch {
	case apierrors.IsNotFound(err) || err == nil && (!metav1.IsControlledBy(revision, p) || revision.DeletionTimestamp != nil):
		if name != p.Spec.Revision {
			return refusef(unknownRevisionReason, "PluginRevision %s was deleted before it became active: the controller manager makes the accepted revision again; to go back to an earlier one, publish its module again", name)
		}
		return refusef(unknownRevisionReason, "spec.revision: there is no PluginRevision %s of this plugin: list them with `refractctl plugin status %s`, or unset spec.revision", name, p.Name)
	case err != nil:
		return fmt.Errorf("getting PluginRevision %s, %w", name, err)
	}
	if err := c.checkTrust(revision); err != nil {
		return err
	}
	if isStored, err := c.isStored(ctx, revision); err != nil || !isStored {
		return cmp.Or(err, refusef(notStoredReason, "the module of PluginRevision %s is lost: unset spec.revision, and have the source name sha256 %s again", name, revision.Spec.SHA256))
	}
	replaceActive(p, name, isProven, c.options.Clock.Now())
	p.Status.Version = revision.Spec.Manifest.Version
	if p.Status.CandidateRevision == name {
		p.Status.CandidateRevision = ""
	}
	return nil
}

// checkTrust refuses a revision that is not signed with one of the keys that the present policy of signatures requires for its source.
func (c *Controller) checkTrust(revision *plugins.PluginRevision) error {
	policy, err := c.readPolicy()
	if err != nil {
		return err
	}
	decision := policy.For(revision.Spec.PolicyName)
	if decision.Mode != signature.Require || slices.ContainsFunc(decision.Keys, func(k signature.Key) bool { return k.Fingerprint() == revision.Spec.Signer }) {
		return nil
	}
	if revision.Spec.Signer == "" {
		return refusef(notVerifiedReason, "PluginRevision %s does not become active: the policy of signatures requires a signature for %s, and none was verified when the revision was made. "+
			"Unset spec.revision to verify the source again, or change the policy (plugins.trust)", revision.Name, revision.Spec.PolicyName)
	}
	return refusef(notVerifiedReason, "PluginRevision %s does not become active: it is signed with the key %s, which is not one of those for %s in the policy of signatures. "+
		"Choose another revision, sign the module again, or list the key (plugins.trust)", revision.Name, revision.Spec.Signer, revision.Spec.PolicyName)
}
