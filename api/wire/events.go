// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Reasons of the Events about objects that cross.
const (
	// FailedReflectionReason: it could not be written there; the message says why.
	FailedReflectionReason = "FailedReflection"
	// FailedTokensReason: the service-account tokens of a pod could not be
	// requested, or not be written there.
	FailedTokensReason = "FailedSATokensReflection"
	// FailedDeletionReason: it could not be deleted.
	FailedDeletionReason = "FailedDeletion"
	// ReflectionDisabledReason: policy, or a plugin, excludes it from reflection.
	ReflectionDisabledReason = "ReflectionDisabled"
	// ReflectionQuarantinedReason: another client keeps reverting what is written, so it is left alone for a while.
	ReflectionQuarantinedReason = "ReflectionQuarantined"
)

// Reasons of the Events of the shadow controllers.
const (
	// CreatedPodReason: the pod of a ShadowPod was created.
	CreatedPodReason = "CreatedPod"
	// FailedCreatePodReason: the API server refused it.
	FailedCreatePodReason = "FailedCreatePod"
	// FailedUpdatePodReason: its labels or annotations could not be written.
	FailedUpdatePodReason = "FailedUpdatePod"
)
