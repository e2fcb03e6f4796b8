// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/printable"
)

// Reasons of conditions, in addition to the reasons of package pluginsource.
const (
	// Reasons of the condition Fetched.
	fetchedReason = "Fetched"
	waitingReason = "Waiting"
	// Reasons of the conditions Verified and Accepted.
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
	// Reasons of the condition Rehearsed.
	rehearsedReason          = "Rehearsed"
	rehearsingReason         = "Rehearsing"
	waitingForApprovalReason = "WaitingForApproval"
	notDeterministicReason   = "NotDeterministic"
	approvedReason           = "Approved"
	pinnedReason             = "Pinned"
	noCandidateReason        = "NoCandidate"
	unreachableReason        = "Unreachable"
	// Reasons of the conditions Rehearsed and Ready.
	noVirtualNodesReason = "NoVirtualNodes"
	failedReason         = "Failed"
	rolledBackReason     = "RolledBack"
	// Reasons of the condition Ready.
	activeReason          = "Active"
	loadingReason         = "Loading"
	pausedReason          = "Paused"
	notReportedReason     = "NotReported"
	unknownRevisionReason = "UnknownRevision"
	notStoredReason       = "NotStored"
	noRevisionReason      = "NoRevision"

	// promotedReason is the reason of the Event about a revision that became active.
	promotedReason = "Promoted"
)

// maxMessage is the maximum length of the message of a condition. It is limited because a message may quote servers and
// modules.
const maxMessage = 1024

// setCondition sets a condition. The message is shortened and converted to a single line.
func setCondition(p *plugins.ReflectionPlugin, kind string, status metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: printable.Shorten(printable.Line(message), maxMessage), ObservedGeneration: p.Generation,
	})
}

// observeCondition records that a condition, which has not changed, also applies to the present generation.
func observeCondition(p *plugins.ReflectionPlugin, kind string) {
	if kept := apimeta.FindStatusCondition(p.Status.Conditions, kind); kept != nil {
		kept.ObservedGeneration = p.Generation
	}
}

// isTrue reports whether a condition is true.
func isTrue(p *plugins.ReflectionPlugin, kind string) bool {
	return apimeta.IsStatusConditionTrue(p.Status.Conditions, kind)
}
