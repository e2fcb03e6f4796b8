// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refract-project/refract/api/wire"
)

// claimError is what keeps a claim from its volume, with the reason that users know from other provisioners, and what to
// do about it.
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

// classified: errors that users are told of in general get the reason; failures of plugins keep theirs.
func (e *claimError) classified() (class, string) {
	kind, reason := classify(e.cause)
	if reason == wire.FailedReflectionReason || reason == InvalidObjectReason {
		reason = e.reason
	}
	return kind, reason
}

// keptError: something stands in the way that only a change of some object will remove.
type keptError struct{ problem string }

func (e *keptError) Error() string { return e.problem }

// lostError: the provider's claim is gone. It may be restored, which nobody tells us of.
type lostError struct{ problem string }

func (e *lostError) Error() string { return e.problem }

// refused names the remedy against what the provider says to a claim.
func refused(reason string, err error) error {
	if err == nil {
		return nil
	}
	remedy := ""
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		remedy = "ask for less in spec.resources.requests, or have the provider raise its quota"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "):
		remedy = "have the provider grant it: its role for virtual kubelets lacks persistentvolumeclaims"
	case apierrors.IsForbidden(err) && reason == wire.VolumeResizeFailedReason:
		remedy = "have the provider set allowVolumeExpansion in its storage class"
	case apierrors.IsForbidden(err):
		remedy = "the provider's admission decides so"
	case apierrors.IsInvalid(err):
		remedy = "correct the field, or the annotation that sets it (" + wire.RemoteStorageClassAnnotation + ", " + wire.RemoteAccessModesAnnotation + ")"
	}
	return &claimError{reason: reason, cause: err, remedy: remedy}
}
