// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/printable"
)

const fieldManager = wire.VirtualNodeFieldManager

func condition(kind offloading.VirtualNodeConditionType, status offloading.VirtualNodeConditionStatus, reason, message string) offloading.VirtualNodeCondition {
	return offloading.VirtualNodeCondition{Type: kind, Status: status, Reason: reason, Message: printable.Message(message)}
}

// conditionOf returns the condition of the given type, or nil if the VirtualNode does not have it.
func conditionOf(vn *offloading.VirtualNode, kind offloading.VirtualNodeConditionType) *offloading.VirtualNodeCondition {
	for i := range vn.Status.Conditions {
		if vn.Status.Conditions[i].Type == kind {
			return &vn.Status.Conditions[i]
		}
	}
	return nil
}

// show writes a condition if it has changed. If other implementations have written the condition several times, only
// one is kept. The virtual kubelet writes conditions, too, so the write fails if the conditions have changed since they
// were read.
func (c *Controller) show(ctx context.Context, v *virtualNode, next offloading.VirtualNodeCondition) error {
	before := conditionOf(v.VirtualNode, next.Type)
	if before != nil && before.Status == next.Status && before.Reason == next.Reason && before.Message == next.Message {
		return nil
	}
	next.LastTransitionTime = metav1.NewTime(c.options.Clock.Now()).Rfc3339Copy()
	if before != nil && before.Status == next.Status && !before.LastTransitionTime.IsZero() {
		next.LastTransitionTime = before.LastTransitionTime
	}
	changed := v.DeepCopy()
	changed.Status.Conditions = append(slices.DeleteFunc(changed.Status.Conditions, func(old offloading.VirtualNodeCondition) bool { return old.Type == next.Type }), next)
	patch := client.MergeFromWithOptions(v.VirtualNode, client.MergeFromWithOptimisticLock{})
	if err := c.client.Status().Patch(ctx, changed, patch, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("writing the conditions of VirtualNode %s, %w", client.ObjectKeyFromObject(v.VirtualNode), err)
	}
	v.VirtualNode = changed
	return nil
}
