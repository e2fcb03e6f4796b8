// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "slices"

// Annotations that the virtual kubelet writes to the consumer's pods together with their status, to remember what it has shown.
const (
	// RestartsAnnotation says as JSON which pod of the provider was counted last, and what was counted for earlier ones.
	RestartsAnnotation = "plugins.refract.io/restarts"
	// ReadinessGatesAnnotation says as JSON which conditions were taken over from the provider, each with a hash of what it said.
	ReadinessGatesAnnotation = "plugins.refract.io/readiness-gates"
)

// AdmittedAnnotation, on copies and ShadowPods, records as hashes which of the requested values the provider's admission has replaced.
const AdmittedAnnotation = "plugins.refract.io/admitted"

// bookkeeping are the labels and annotations that Refract itself writes to objects of the consumer.
var bookkeeping = []string{
	OffloadedPodLabel, RemoteUnavailableLabel, RestartsAnnotation, ReadinessGatesAnnotation, StatusFromAnnotation, StatusHashAnnotation,
}

// Bookkeeping returns the labels and annotations that Refract itself writes to objects of the consumer. They never cross, and they are
// nobody's intent: that one of them changes is not a reason to change a copy.
func Bookkeeping() []string { return slices.Clone(bookkeeping) }

// IsBookkeeping reports whether a label or an annotation is one of Bookkeeping.
func IsBookkeeping(key string) bool { return slices.Contains(bookkeeping, key) }
