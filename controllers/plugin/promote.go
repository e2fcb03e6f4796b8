// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// promote determines the active revision, and sets the condition Ready. It is the only function that sets the active
// revision.
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
		if apierrors.IsNotFound(err) {
			reason, message = unknownRevisionReason, fmt.Sprintf("spec.revision: there is no PluginRevision %s of this plugin", next)
		} else if err != nil {
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

// activate makes a revision of the plugin the active one. A NotFound error means that the revision does not exist.
func (c *Controller) activate(ctx context.Context, p *plugins.ReflectionPlugin, name string) error {
	revision := &plugins.PluginRevision{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, revision); err != nil {
		return err
	}
	if !metav1.IsControlledBy(revision, p) || revision.DeletionTimestamp != nil {
		return apierrors.NewNotFound(plugins.GroupVersion.WithResource("pluginrevisions").GroupResource(), name)
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

// setReady sets the condition Ready. An active revision is not Ready before virtual kubelets have reported it.
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
