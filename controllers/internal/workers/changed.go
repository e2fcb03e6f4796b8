// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Changed reports whether an update is relevant: either fields other than the status have changed, or the event is a
// resync. Updates to the status alone are not relevant.
func Changed(e event.UpdateEvent) bool {
	before, now := e.ObjectOld, e.ObjectNew
	return before.GetResourceVersion() == now.GetResourceVersion() ||
		before.GetUID() != now.GetUID() ||
		before.GetGeneration() != now.GetGeneration() ||
		(before.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) ||
		!equality.Semantic.DeepEqual(before.GetLabels(), now.GetLabels()) ||
		!equality.Semantic.DeepEqual(before.GetAnnotations(), now.GetAnnotations()) ||
		!equality.Semantic.DeepEqual(before.GetOwnerReferences(), now.GetOwnerReferences())
}
