// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Reasons of Events about objects that are reflected.
const (
	// FailedReflectionReason means that the object could not be written to the other cluster. The message contains the
	// cause.
	FailedReflectionReason = "FailedReflection"
	// FailedTokensReason means that the service account tokens of a pod could not be requested, or not be written to
	// the provider.
	FailedTokensReason = "FailedSATokensReflection"
	// FailedDeletionReason means that the copy could not be deleted.
	FailedDeletionReason = "FailedDeletion"
	// ReflectionDisabledReason means that the policy or a plugin excludes the object from reflection.
	ReflectionDisabledReason = "ReflectionDisabled"
	// ReflectionQuarantinedReason means that the copy is not written for some time, because another client reverts it
	// again and again.
	ReflectionQuarantinedReason = "ReflectionQuarantined"
)

// Reasons of Events of the shadow controllers.
const (
	// CreatedPodReason means that the pod of a ShadowPod was created.
	CreatedPodReason = "CreatedPod"
	// FailedCreatePodReason means that the API server has rejected the pod of a ShadowPod.
	FailedCreatePodReason = "FailedCreatePod"
	// FailedUpdatePodReason means that the labels or annotations of the pod could not be written.
	FailedUpdatePodReason = "FailedUpdatePod"
)
