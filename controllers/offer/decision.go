// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package offer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/controllers/internal/report"
)

// Reasons of the condition Resources, which are Liqo's, and the action of its Events.
const (
	AcceptedReason = "ResourceSliceResourcesAccepted"
	DeniedReason   = "ResourceSliceResourcesDenied"
	DecideAction   = "Decide"
)

// Deny writes that the resources of a slice are not granted. What was granted before stays in its status, for whoever runs there.
func Deny(slice *auth.ResourceSlice, message string) {
	Decide(slice, auth.ResourcesCondition, auth.ResourceSliceDenied, DeniedReason, message)
}

// Decide writes a condition.
func Decide(slice *auth.ResourceSlice, what auth.ResourceSliceConditionType, decision auth.ResourceSliceConditionStatus, reason, message string) {
	condition := slice.Status.Condition(what)
	if condition == nil {
		slice.Status.Conditions = append(slice.Status.Conditions, auth.ResourceSliceCondition{Type: what})
		condition = slice.Status.Condition(what)
	}
	if condition.Status != decision {
		condition.LastTransitionTime = metav1.Now()
	}
	condition.Status, condition.Reason, condition.Message = decision, reason, message
}

// Tell writes an Event for each decision that has changed.
func Tell(reporter *report.Reporter, before, now *auth.ResourceSlice) {
	for _, condition := range now.Status.Conditions {
		if known := before.Status.Condition(condition.Type); known != nil && known.Status == condition.Status && known.Message == condition.Message {
			continue
		}
		if condition.Status == auth.ResourceSliceDenied {
			reporter.Warn(now, condition.Reason, DecideAction, condition.Message)
			continue
		}
		reporter.Tell(now, nil, condition.Reason, DecideAction, condition.Message)
	}
}
