// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsImmutability reports whether a change was rejected for no other reason than that it changes immutable fields.
func IsImmutability(err error) bool {
	causes := CausesOf(err)
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(cause metav1.StatusCause) bool {
		return !strings.Contains(cause.Message, "immutable") && !strings.Contains(cause.Message, "may not change")
	})
}

// CausesOf returns the causes in the API server's response if it has rejected an object as invalid.
func CausesOf(err error) []metav1.StatusCause {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}
