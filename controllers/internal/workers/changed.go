// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Changed is an event filter. It ignores updates that change only the status, the finalizers or the managedFields. It
// lets resyncs pass.
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
