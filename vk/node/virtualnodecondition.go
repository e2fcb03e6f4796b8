// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/printable"
)

// Reasons of the condition Node of a VirtualNode.
const (
	RegisteredReason = "NodeRegistered"
	// NameTakenReason means that a Node with the name of the virtual node exists and belongs to another owner.
	NameTakenReason = "NodeNameTaken"
)

// takenError means that a Node with the name of this virtual node belongs to another owner. The message explains how to
// solve this problem.
type takenError struct{ error }

// showNode writes a condition to the VirtualNode. The condition reports whether the Node of the VirtualNode is
// registered or, if the name is taken, the owner of the Node with this name. For any other problem, nothing is written.
// Each change is written only once, because the controller of another implementation may also write the condition.
// showNode returns false if the condition must be written again because a write has failed.
func (c *Controller) showNode(ctx context.Context, problem error) (shown bool) {
	next := offloadingv1beta1.VirtualNodeCondition{Type: offloadingv1beta1.NodeConditionType,
		Status: offloadingv1beta1.RunningConditionStatus, Reason: RegisteredReason, Message: printable.Message("Node " + c.config.Name + " is registered")}
	var taken takenError
	switch {
	case errors.As(problem, &taken):
		next.Status, next.Reason, next.Message = offloadingv1beta1.NoneConditionStatus, NameTakenReason, printable.Message(taken.Error())
	case problem != nil:
		return true
	}
	vn := c.observed.virtualNode()
	if vn == nil || !vn.DeletionTimestamp.IsZero() || next == c.shown {
		return true
	}
	conditions := slices.Clone(vn.Status.Conditions)
	at := slices.IndexFunc(conditions, func(d offloadingv1beta1.VirtualNodeCondition) bool { return d.Type == next.Type })
	if at < 0 {
		at, conditions = len(conditions), append(conditions, offloadingv1beta1.VirtualNodeCondition{})
	}
	current := conditions[at]
	if isDrain := current.Status == offloadingv1beta1.DrainingConditionStatus; problem == nil && (isDrain || current.Status == next.Status) || current.Status == next.Status && current.Message == next.Message {
		c.shown = next
		return true
	}
	conditions[at] = next
	conditions[at].LastTransitionTime = metav1.NewTime(c.config.Clock.Now().Truncate(time.Second))
	err := c.patchConditions(ctx, vn, conditions)
	policy := admission.DenyingPolicy(err)
	// A write that RBAC forbids is not an error. The roles of another implementation may not permit it, and its own
	// controllers write the condition in this case.
	if err != nil && (policy != "" || !apierrors.IsForbidden(err)) {
		if policy != "" {
			c.warnOnce(admission.DeniedReason, admission.Note(policy, err))
		}
		log.FromContext(ctx).Error(err, "The conditions of the VirtualNode cannot be updated, retrying")
		return false
	}
	c.warnOnce(admission.DeniedReason, "")
	c.shown = next
	return true
}

func (c *Controller) patchConditions(ctx context.Context, vn *offloadingv1beta1.VirtualNode, conditions []offloadingv1beta1.VirtualNodeCondition) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": vn.ResourceVersion},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("encoding the conditions of VirtualNode %s/%s, %w", vn.Namespace, vn.Name, err)
	}
	nodes := c.dynamic.Resource(offloadingv1beta1.VirtualNodeGVR).Namespace(vn.Namespace)
	if _, err := nodes.Patch(ctx, vn.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("writing the conditions of VirtualNode %s/%s, %w", vn.Namespace, vn.Name, err)
	}
	return nil
}
