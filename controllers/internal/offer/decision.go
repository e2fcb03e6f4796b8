// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/printable"
)

// The reasons of the condition Resources, which are the same as in Liqo, and the action of the Events about the
// condition.
const (
	AcceptedReason = "ResourceSliceResourcesAccepted"
	DeniedReason   = "ResourceSliceResourcesDenied"
	DecideAction   = "Decide"
)

// DenyResources sets the condition that the resources of a slice are not granted. The status keeps the previous grant,
// for pods that are still running.
func DenyResources(slice *auth.ResourceSlice, message string) {
	SetCondition(slice, auth.ResourcesCondition, auth.ResourceSliceDenied, DeniedReason, message)
}

// SetCondition sets a condition in the status of a slice.
func SetCondition(slice *auth.ResourceSlice, what auth.ResourceSliceConditionType, decision auth.ResourceSliceConditionStatus, reason, message string) {
	condition := slice.Status.Condition(what)
	if condition == nil {
		slice.Status.Conditions = append(slice.Status.Conditions, auth.ResourceSliceCondition{Type: what})
		condition = slice.Status.Condition(what)
	}
	if condition.Status != decision {
		condition.LastTransitionTime = metav1.Now()
	}
	condition.Status, condition.Reason, condition.Message = decision, reason, printable.Message(message)
}

// ReportDecisions writes an Event for each changed condition.
func ReportDecisions(reporter *report.Reporter, before, now *auth.ResourceSlice) {
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

// RequestsForSlices returns a reconcile request for each ResourceSlice for which answers returns true. It is called
// when something has changed that the decisions about slices depend on. options can restrict the slices to a namespace.
func RequestsForSlices(ctx context.Context, c client.Reader, answers func(client.Object) bool, options ...client.ListOption) (requests []reconcile.Request) {
	list := &auth.ResourceSliceList{}
	if err := c.List(ctx, list, options...); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list ResourceSlices")
		return nil
	}
	for i := range list.Items {
		if answers(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
