// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/pluginsource/signature"
)

// promote decides which revision is active, and sets the condition Ready. Nothing else sets the active revision.
func (c *Controller) promote(ctx context.Context, p *plugins.ReflectionPlugin, isAccepted bool) error {
	next, reason, message := p.Status.ActiveRevision, "", ""
	switch candidate := p.Status.CandidateRevision; {
	case p.Spec.Paused:
		reason, message = pausedReason, "spec.paused is set: nothing is fetched, and no other revision becomes active"
	case p.Spec.Revision != "":
		next = p.Spec.Revision
	case !isAccepted || candidate == "":
	case p.Spec.Rollout.Strategy == plugins.ImmediateRollout, isApproved(p, candidate):
		next = candidate
	default:
		reason, message = waitForRehearsalReason, fmt.Sprintf("revision %s is accepted; this version does not rehearse it: set spec.rollout.rehearsal.approved to its name, or spec.rollout.strategy to Immediate", candidate)
	}
	if next != p.Status.ActiveRevision {
		err := c.activate(ctx, p, next)
		var refused *refusal
		if errors.As(err, &refused) {
			if active := p.Status.ActiveRevision; active != "" {
				refused = &refusal{refused.reason, fmt.Sprintf("revision %s stays active; %s", active, refused.message)}
			}
			c.setFailed(p, plugins.ReadyCondition, metav1.ConditionFalse, refused.reason, refused.message)
			return nil
		}
		if err != nil {
			return err
		}
	}
	setReady(p, reason, message)
	return nil
}

// isApproved reports whether a user has approved the revision.
func isApproved(p *plugins.ReflectionPlugin, revision string) bool {
	rehearsal := p.Spec.Rollout.Rehearsal
	return rehearsal != nil && rehearsal.Approved == revision
}

// activate makes a revision of the plugin the active one, if there is one of that name and the policy of signatures allows it.
func (c *Controller) activate(ctx context.Context, p *plugins.ReflectionPlugin, name string) error {
	revision := &plugins.PluginRevision{}
	err := c.live.Get(ctx, client.ObjectKey{Name: name}, revision)
	switch {
	case apierrors.IsNotFound(err) || err == nil && (!metav1.IsControlledBy(revision, p) || revision.DeletionTimestamp != nil):
		if name != p.Spec.Revision {
			return refusef(unknownRevisionReason, "PluginRevision %s, which was accepted, was deleted: it is made again from the source", name)
		}
		return refusef(unknownRevisionReason, "spec.revision: there is no PluginRevision %s of this plugin", name)
	case err != nil:
		return fmt.Errorf("getting PluginRevision %s, %w", name, err)
	}
	if err := c.checkTrust(revision); err != nil {
		return err
	}
	if isStored, err := c.isStored(ctx, revision); err != nil || !isStored {
		return cmp.Or(err, refusef(notStoredReason, "the module of PluginRevision %s is lost: unset spec.revision, and have the source name sha256 %s again", name, revision.Spec.SHA256))
	}
	if p.Status.ActiveRevision != "" {
		p.Status.PreviousRevision = p.Status.ActiveRevision
	}
	p.Status.ActiveRevision, p.Status.Version = name, revision.Spec.Manifest.Version
	if p.Status.CandidateRevision == name {
		p.Status.CandidateRevision = ""
	}
	return nil
}

// checkTrust refuses a revision that the policy of signatures, as it is now, requires to be signed with another key than the one that has signed it.
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
		return refusef(notVerifiedReason, "PluginRevision %s does not become active: the policy of signatures requires one for %s, and none was verified when the revision was made. "+
			"Unset spec.revision to verify the source again, or change the policy (plugins.trust)", revision.Name, revision.Spec.PolicyName)
	}
	return refusef(notVerifiedReason, "PluginRevision %s does not become active: it is signed with the key %s, which is not one of those for %s in the policy of signatures. "+
		"Choose another revision, sign the module again, or list the key (plugins.trust)", revision.Name, revision.Spec.Signer, revision.Spec.PolicyName)
}

// setReady sets the condition Ready. What is active cannot be True before virtual kubelets have reported it.
func setReady(p *plugins.ReflectionPlugin, reason, message string) {
	status := metav1.ConditionUnknown
	active := p.Status.ActiveRevision
	switch {
	case active != "" && reason == "":
		reason, message = notReportedReason, fmt.Sprintf("revision %s is active; no virtual kubelet has reported that it runs", active)
	case active != "":
		message = fmt.Sprintf("revision %s is active; %s", active, message)
	case reason == "":
		status = metav1.ConditionFalse
		reason, message = noRevisionReason, "no revision is accepted"
		for _, kind := range []string{plugins.FetchedCondition, plugins.VerifiedCondition, plugins.AcceptedCondition} {
			if failed := apimeta.FindStatusCondition(p.Status.Conditions, kind); failed != nil && failed.Status == metav1.ConditionFalse && !isTrue(p, plugins.AcceptedCondition) {
				reason, message = failed.Reason, fmt.Sprintf("no revision is active, see the condition %s", kind)
				break
			}
		}
	default:
		status = metav1.ConditionFalse
	}
	setCondition(p, plugins.ReadyCondition, status, reason, message)
}
