// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// fault is why a resource is not reflected, as the condition says it.
type fault struct {
	reason, message string
	final           bool // nothing but another spec can help
	shortly         bool // it goes by itself in a moment
	unserved        bool // one of the clusters has no such resource, whatever the reason is that something else was not done
}

func (e *fault) Error() string { return e.message }

func (e *fault) condition() condition { return condition{reason: e.reason, message: e.message} }

// wrong is a fault of the spec itself.
func wrong(format string, arguments ...any) error {
	return &fault{reason: pluginsv1alpha1.NotReflectableReason, message: fmt.Sprintf(format, arguments...), final: true}
}

// notReflectable is a fault of what the clusters have: it may be another one some day.
func notReflectable(format string, arguments ...any) error {
	return &fault{reason: pluginsv1alpha1.NotReflectableReason, message: fmt.Sprintf(format, arguments...)}
}

func missingDefinition(format string, arguments ...any) *fault {
	return &fault{reason: pluginsv1alpha1.MissingDefinitionReason, message: fmt.Sprintf(format, arguments...)}
}

// away is a cluster that is known not to respond, and is not waited for again.
func (s *side) away() error {
	return &fault{reason: pluginsv1alpha1.UnreachableReason, message: fmt.Sprintf("the API server of %s does not answer", s)}
}

// unanswered is what it means that a call gave no answer to go on with. That credentials are refused is among it: they
// concern every resource, and are renewed by others.
func (s *side) unanswered(err error) error {
	var known *fault
	if errors.As(err, &known) {
		return err
	}
	verb := "does not answer"
	if apierrors.IsUnauthorized(err) {
		verb = "does not accept the credentials of this virtual kubelet"
	}
	return &fault{reason: pluginsv1alpha1.UnreachableReason, message: fmt.Sprintf("the API server of %s %s: %v", s, verb, err)}
}
