// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/pluginsource/signature"
)

// readDecision returns the decision of the policy of signatures about the source of a plugin.
func (c *Controller) readDecision(p *plugins.ReflectionPlugin) (signature.Decision, error) {
	name, err := sourceName(p.Spec.Source)
	if err != nil {
		return signature.Decision{}, &stepError{plugins.FetchedCondition, err}
	}
	policy, err := c.readPolicy()
	if err != nil {
		return signature.Decision{}, &stepError{plugins.VerifiedCondition, err}
	}
	return policy.For(name), nil
}

// readPolicy reads the present policy of signatures.
func (c *Controller) readPolicy() (*signature.Policy, error) {
	policy, err := signature.ReadPolicy(c.options.TrustPolicy)
	if err != nil {
		return nil, refusef(invalidPolicyReason, "the policy of signatures (--plugin-trust-policy) cannot be used: %v. Correct plugins.trust in the values of the chart", err)
	}
	return policy, nil
}

// verify sets the condition Verified, and returns the fingerprint of the key that has signed the module, or an empty
// text if no signature was verified. After an error, the module is not accepted.
func (c *Controller) verify(ctx context.Context, p *plugins.ReflectionPlugin, m *module, decision signature.Decision) (signer string, err error) {
	result, err := c.checkSignature(ctx, m, decision)
	switch {
	case err == nil && result.Signer != "":
		setCondition(p, plugins.VerifiedCondition, metav1.ConditionTrue, signedReason, "signed with the key "+result.Signer)
		return result.Signer, nil
	case decision.Mode == signature.Off:
		setCondition(p, plugins.VerifiedCondition, metav1.ConditionUnknown, notRequiredReason, "the policy of signatures is Off for this source")
		return "", nil
	}
	var refused *refusal
	switch isRefusal := errors.As(err, &refused); {
	// If signatures could not be read, they are read again later, even in the mode Warn.
	case !isRefusal, decision.Mode == signature.Require, refused.reason == notVerifiableReason:
		return "", err
	case refused.reason == notSignableReason:
		if before := apimeta.FindStatusCondition(p.Status.Conditions, plugins.VerifiedCondition); before == nil ||
			before.Reason != refused.reason || before.ObservedGeneration != p.Generation {
			c.report.Warn(p, refused.reason, actions[plugins.VerifiedCondition], err.Error()+" (accepted: the policy for this source is Warn)")
		}
		setCondition(p, plugins.VerifiedCondition, metav1.ConditionUnknown, refused.reason, err.Error())
	default:
		c.failCondition(p, plugins.VerifiedCondition, refused.reason, err.Error()+" (accepted nevertheless: the policy for this source is Warn)")
	}
	return "", nil
}

// checkSignature searches for a valid signature of a module. If there is none, it returns an error, except in the mode
// Off.
func (c *Controller) checkSignature(ctx context.Context, m *module, decision signature.Decision) (signature.Result, error) {
	switch {
	case decision.Mode == signature.Off:
		return signature.Result{}, nil
	case m.image == nil:
		return signature.Result{}, refusef(notSignableReason, "a module of this kind of source has no signature: push it to a registry and sign it with cosign, or set the policy for this source to Off (plugins.trust)")
	case len(decision.Keys) == 0:
		return signature.Result{}, refusef(unsignedReason, "no key is configured for this image: list its public key in the values of the chart (plugins.trust)")
	}
	result, err := signature.Verify(ctx, m.image.Digest.DigestStr(), m.image.Attachments(ctx), decision.Keys)
	switch {
	case err != nil:
		return result, refusef(notVerifiableReason, "reading the signatures of %s, %v", m.resolved, err)
	case result.Signer != "":
		return result, nil
	case result.Signatures == 0:
		return result, refusef(unsignedReason, "%s is not signed: sign it with cosign sign --key", m.resolved)
	}
	detail := ""
	if result.Unreadable != "" {
		detail = fmt.Sprintf(" (%s)", result.Unreadable)
	}
	return result, refusef(wronglySignedReason, "%s has no valid signature by a key that is configured for it, among %d signatures and attestations%s: sign it with cosign sign --key, or list the key in the values of the chart (plugins.trust)",
		m.resolved, result.Signatures, detail)
}
