// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	validation "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/apifailure"
)

// Remedy returns the remedy for an error of an API server. It returns "" if there is none, or if the message of the
// error already contains it.
func Remedy(err error) string {
	var own Remedied
	switch {
	case errors.As(err, &own):
		return ""
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "the remote namespace is being deleted; offload the namespace again once it is gone"
	case admission.DenyingPolicy(err) != "":
		return "change what the policy denies, or ask the administrator of that cluster to change the policy"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return "ask the provider to raise the quota, or delete objects there"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot "):
		// If the remote namespace is being deleted, the permission may be missing because the permissions are deleted
		// first.
		return "grant the virtual kubelet this permission, or offload the namespace again if the remote namespace is being deleted"
	case tooLarge(err):
		return "make the object smaller: reflection adds labels and annotations to the remote object"
	case IsImmutability(err):
		return "revert the change, or delete the remote object to recreate it"
	case apierrors.IsInvalid(err):
		return "correct the field here, or in the plugin or VirtualNode that sets it"
	}
	return ""
}

// tooLarge reports whether the error means that an object exceeds the size limit of an API server or of its storage.
func tooLarge(err error) bool {
	for _, cause := range CausesOf(err) {
		if cause.Type == metav1.CauseType(validation.ErrorTypeTooLong) {
			return true
		}
	}
	return apierrors.IsRequestEntityTooLargeError(err) ||
		apifailure.IsAnswered(err) && (strings.Contains(err.Error(), "request is too large") || strings.Contains(err.Error(), "message larger than max"))
}
