// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
)

// claimError is a problem that prevents a claim from getting a volume. Its reason is the reason that users know from
// other provisioners. Its message contains the remedy.
type claimError struct {
	reason string
	cause  error
	remedy string
}

func (e *claimError) Error() string {
	if e.remedy == "" {
		return e.cause.Error()
	}
	return e.cause.Error() + ": " + e.remedy
}

func (e *claimError) Unwrap() error { return e.cause }

// Remedied implements failure.Remedied.
func (e *claimError) Remedied() {}

// Classify implements failure.Classified. Errors of classes that are generally shown to users get the reason of the
// claimError. Failures of plugins keep their own reason.
func (e *claimError) Classify() (failure.Class, string) {
	kind, reason := failure.Classify(e.cause)
	if reason == wire.FailedReflectionReason || reason == failure.InvalidObjectReason {
		reason = e.reason
	}
	return kind, reason
}

// keptError is an obstacle that remains until an object changes, so that retries are useless.
type keptError struct{ problem string }

func (e *keptError) Error() string { return e.problem }

// Classify implements failure.Classified.
func (e *keptError) Classify() (failure.Class, string) {
	return failure.Input, failure.InvalidObjectReason
}

// lostError means that the provider's claim no longer exists. It must be retried, because the claim may be restored,
// and no watch would report this.
type lostError struct{ problem string }

func (e *lostError) Error() string { return e.problem }

// Classify implements failure.Classified.
func (e *lostError) Classify() (failure.Class, string) {
	return failure.Foreign, wire.FailedReflectionReason
}

// addRemedy adds the remedy to the error for a claim that the provider has refused.
func addRemedy(reason string, err error) error {
	if err == nil {
		return nil
	}
	remedy := ""
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		remedy = "request less in spec.resources.requests, or ask the provider to raise its quota"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "):
		remedy = "ask the provider to grant access to persistentvolumeclaims in its virtual kubelet role"
	case apierrors.IsForbidden(err) && reason == wire.VolumeResizeFailedReason:
		remedy = "ask the provider to set allowVolumeExpansion in its storage class"
	case apierrors.IsForbidden(err):
		remedy = "rejected by an admission policy of the provider"
	case apierrors.IsInvalid(err):
		remedy = "correct the field, or the annotation that sets it (" + wire.RemoteStorageClassAnnotation + ", " + wire.RemoteAccessModesAnnotation + ")"
	}
	return &claimError{reason: reason, cause: err, remedy: remedy}
}
