// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/printable"
)

// Reasons of conditions, besides those of pluginsource.
const (
	// Fetched.
	fetchedReason = "Fetched"
	// Verified.
	signedReason           = "Signed"
	unsignedReason         = "Unsigned"
	wronglySignedReason    = "WronglySigned"
	notSignableReason      = "NotSignable"
	notRequiredReason      = "NotRequired"
	notVerifiableReason    = "SignaturesUnavailable"
	invalidPolicyReason    = "InvalidTrustPolicy"
	notFetchedReason       = "NotFetched"
	notVerifiedReason      = "NotVerified"
	acceptedReason         = "Accepted"
	invalidSelectorReason  = "InvalidSelector"
	invalidConfigReason    = "InvalidConfig"
	nameTakenReason        = "NameTaken"
	unknownDefaultReason   = "UnknownDefaultPlugin"
	unknownKindReason      = "UnknownKind"
	kindNotDeclaredReason  = "KindNotDeclared"
	writesNotAllowedReason = "WritesNotDeclared"
	capabilityReason       = "CapabilityNotGranted"
	revisionTakenReason    = "RevisionNameTaken"
	// Ready.
	pausedReason           = "Paused"
	waitForRehearsalReason = "WaitingForRehearsal"
	notReportedReason      = "NotReported"
	unknownRevisionReason  = "UnknownRevision"
	notStoredReason        = "NotStored"
	noRevisionReason       = "NoRevision"
)

// maxMessage of a condition: servers and modules are quoted in it.
const maxMessage = 1024

// setCondition sets a condition, with the message as one line.
func setCondition(p *plugins.ReflectionPlugin, kind string, status metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: printable.Shorten(printable.Line(message), maxMessage), ObservedGeneration: p.Generation,
	})
}

// isTrue reports whether a condition is true.
func isTrue(p *plugins.ReflectionPlugin, kind string) bool {
	return apimeta.IsStatusConditionTrue(p.Status.Conditions, kind)
}
