// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "slices"

// Annotations that the virtual kubelet writes to the consumer's pods together with their status. They record how the
// status was derived, so that the derivation continues after a restart.
const (
	// RestartsAnnotation contains, as JSON, the UID of the provider's pod that was last observed and the restart counts
	// of earlier pods.
	RestartsAnnotation = "plugins.refract.io/restarts"
	// ReadinessGatesAnnotation contains the conditions that were reflected from the provider, encoded as JSON, each with a
	// hash of its content on the provider.
	ReadinessGatesAnnotation = "plugins.refract.io/readiness-gates"
)

// AdmittedAnnotation on copies and ShadowPods records, as hashes, which of the requested values the provider's
// admission has replaced.
const AdmittedAnnotation = "plugins.refract.io/admitted"

// bookkeeping lists the labels and annotations that Refract itself writes to objects of the consumer.
var bookkeeping = []string{
	OffloadedPodLabel, RemoteUnavailableLabel, RestartsAnnotation, ReadinessGatesAnnotation, StatusFromAnnotation, StatusHashAnnotation,
}

// Bookkeeping returns the labels and annotations that Refract itself writes to objects of the consumer. They are
// never reflected. Because they do not express the intent of a user, a change to them is not a reason to update a copy.
func Bookkeeping() []string { return slices.Clone(bookkeeping) }

// IsBookkeeping reports whether a label or an annotation is in the list that Bookkeeping returns.
func IsBookkeeping(key string) bool { return slices.Contains(bookkeeping, key) }
