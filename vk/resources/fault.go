// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// fault is the reason why a resource is not reflected. It is reported in the condition of the ReflectedResource.
type fault struct {
	reason, message string
	final           bool // only a change of the spec can resolve it
	shortly         bool // it will resolve itself in a moment
	unserved        bool // one of the clusters does not serve the resource; there may also be other problems
}

func (e *fault) Error() string { return e.message }

func (e *fault) toCondition() condition { return condition{reason: e.reason, message: e.message} }

// specFault returns a fault that is caused by the spec.
func specFault(format string, arguments ...any) error {
	return &fault{reason: pluginsv1alpha1.NotReflectableReason, message: fmt.Sprintf(format, arguments...), final: true}
}

// notReflectable returns a fault that is caused by the resources that the clusters serve. It is retried, because
// these resources may change.
func notReflectable(format string, arguments ...any) error {
	return &fault{reason: pluginsv1alpha1.NotReflectableReason, message: fmt.Sprintf(format, arguments...)}
}

func missingDefinition(format string, arguments ...any) *fault {
	return &fault{reason: pluginsv1alpha1.MissingDefinitionReason, message: fmt.Sprintf(format, arguments...)}
}

// unreachableFault returns the fault of a cluster that is known to be unreachable, so that calls do not have to wait
// for it.
func (s *side) unreachableFault() error {
	return &fault{reason: pluginsv1alpha1.UnreachableReason, message: fmt.Sprintf("the API server of %s does not answer", s)}
}

// responseFault returns the fault of a call without a usable response. This includes rejected credentials, because they
// affect every resource and are renewed elsewhere.
func (s *side) responseFault(err error) error {
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
