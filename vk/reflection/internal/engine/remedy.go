// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	validation "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// remedy returns the remedy for an error of an API server, or "" if the error itself contains it or there is none.
func remedy(err error) string {
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
		return "grant the virtual kubelet this permission"
	case tooLarge(err):
		return "make the object smaller: reflection adds labels and annotations to the remote object"
	case isImmutability(err):
		return "revert the change, or delete the remote object to recreate it"
	case apierrors.IsInvalid(err):
		return "correct the field here, or in the plugin or VirtualNode that sets it"
	}
	return ""
}

// tooLarge reports whether an object exceeds the size limit of an API server or of its storage.
func tooLarge(err error) bool {
	for _, cause := range causesOf(err) {
		if cause.Type == metav1.CauseType(validation.ErrorTypeTooLong) {
			return true
		}
	}
	return apierrors.IsRequestEntityTooLargeError(err) ||
		breaker.Answered(err) && (strings.Contains(err.Error(), "request is too large") || strings.Contains(err.Error(), "message larger than max"))
}

// misspelt warns about annotations that have no effect because of the case of their letters.
func (r *reflector) misspelt(w *Worker, object *unstructured.Unstructured) {
	for name := range raw.Annotations(object.Object) {
		if !strings.HasPrefix(name, "liqo.io/") {
			continue
		}
		for _, meant := range wire.UserAnnotations {
			if name != meant && strings.EqualFold(name, meant) {
				w.Warned = true
				r.m.events.Warn(r.kind.Name, object, InvalidObjectReason, "unknown annotation "+name+"; did you mean "+meant+"?")
			}
		}
	}
}
