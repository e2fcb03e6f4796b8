// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/poddrain"
)

// Reasons of conditions and Events, and the action of the Events.
const (
	drainingReason   = "Draining"
	drainedReason    = "Drained"
	timedOutReason   = "DrainTimedOut"
	uncordonedReason = "NodeUncordoned"

	drainAction = "Drain"
)

// evictionsAtOnce limits the evictions in one round, so that the round ends before its deadline. The remaining pods are
// evicted in the next rounds.
const evictionsAtOnce = 200

// drain cordons the node and evicts its pods. It reports whether no pods are left, and writes the number of the
// remaining pods to a condition of the VirtualNode.
func (c *Controller) drain(ctx context.Context, v *virtualNode) (drained bool, err error) {
	if v.node == nil {
		return true, nil
	}
	if err := c.beginDrain(ctx, v); err != nil {
		return false, err
	}
	if err := c.cordon(ctx, v.node); err != nil {
		return false, err
	}
	pods, err := c.podsOf(ctx, v.Name)
	if err != nil || len(pods) == 0 {
		return err == nil, err
	}
	round, err := c.evict(ctx, pods)
	if err != nil {
		return false, err
	}
	return false, c.showDrain(ctx, v, round)
}

// beginDrain writes the Draining condition before the node is changed. The write fails if the VirtualNode has
// changed, because the drain may have been withdrawn. A client that withdraws a drain can therefore see in the
// condition whether the controller may still cordon the Node (see endDrain).
func (c *Controller) beginDrain(ctx context.Context, v *virtualNode) error {
	before := conditionOf(v.VirtualNode, offloading.NodeConditionType)
	if v.DeletionTimestamp != nil || before != nil && before.Status == offloading.DrainingConditionStatus {
		return nil
	}
	return c.show(ctx, v, condition(offloading.NodeConditionType, offloading.DrainingConditionStatus, drainingReason, "Cordoning the node"))
}

func (c *Controller) cordon(ctx context.Context, node *corev1.Node) error {
	if node.Spec.Unschedulable {
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	if err := c.client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, patch, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("cordoning node %s, %w", node.Name, err)
	}
	return nil
}

// boundTo returns all pods that are bound to a node.
func (c *Controller) boundTo(ctx context.Context, node string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := c.live.List(ctx, list, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s, %w", node, err)
	}
	return list.Items, nil
}

// podsOf returns the pods to evict from a node.
func (c *Controller) podsOf(ctx context.Context, node string) ([]metav1.PartialObjectMetadata, error) {
	bound, err := c.boundTo(ctx, node)
	return slices.DeleteFunc(bound, func(pod metav1.PartialObjectMetadata) bool { return !poddrain.Evicts(&pod) }), err
}

// round is the result of one round of evictions on a node.
type round struct {
	left, ending int
	held         []string // pods that a disruption budget blocks, with the API server's message
	refused      error    // error from the first eviction that failed for a reason other than a disruption budget
}

func (c *Controller) evict(ctx context.Context, pods []metav1.PartialObjectMetadata) (*round, error) {
	done := &round{left: len(pods)}
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			done.ending++
			continue
		}
		if i >= evictionsAtOnce+done.ending {
			break
		}
		uid := pod.UID
		eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}}
		key := client.ObjectKeyFromObject(pod).String()
		err := c.client.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}, eviction)
		switch {
		// The pod is terminating, is gone, or was replaced.
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
			done.ending++
		// Errors without this cause mean that the API server limits the rate of requests.
		case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
			done.held = append(done.held, key+": "+err.Error())
		case ctx.Err() != nil:
			return nil, fmt.Errorf("evicting pod %s, %w", key, err)
		case done.refused == nil:
			done.refused = fmt.Errorf("evicting pod %s, %w", key, err)
		}
	}
	return done, nil
}

// showDrain reports the progress of a drain, and the pods that block it.
func (c *Controller) showDrain(ctx context.Context, v *virtualNode, done *round) error {
	message := fmt.Sprintf("%s left on the node, %d terminating", count(done.left, "pod"), done.ending)
	if len(done.held) > 0 {
		message += fmt.Sprintf("; %d blocked by a PodDisruptionBudget, such as %s", len(done.held), done.held[0])
	}
	if done.refused != nil {
		message += "; " + done.refused.Error()
	}
	if v.cluster != nil && core.ConditionOf(v.cluster.Status.Conditions, core.APIServerStatusCondition) == core.ConditionStatusError {
		message += fmt.Sprintf("; cluster %s is unreachable, so they cannot terminate there. If it is gone for good, run: refractctl delete virtualnode %s --force", v.provider(), v.Name)
	}
	reason, since := drainingReason, c.drainingSince(v)
	if over := c.options.Clock.Since(since) - c.options.DrainTimeout; c.options.DrainTimeout > 0 && over >= 0 {
		reason = timedOutReason
		c.report.Warn(v.VirtualNode, timedOutReason, drainAction, fmt.Sprintf(
			"node %s is not drained after %s: %s. Still trying; to speed it up, delete the pods or relax the PodDisruptionBudget", v.Name, c.options.DrainTimeout, message))
	}
	if err := c.show(ctx, v, condition(offloading.NodeConditionType, offloading.DrainingConditionStatus, reason, message)); err != nil {
		return err
	}
	return done.refused // the caller counts the error and retries
}

// drainingSince returns the time at which the drain began.
func (c *Controller) drainingSince(v *virtualNode) time.Time {
	if before := conditionOf(v.VirtualNode, offloading.NodeConditionType); before != nil && before.Status == offloading.DrainingConditionStatus {
		return before.LastTransitionTime.Time
	}
	return c.options.Clock.Now()
}

// count returns a number with its noun, such as "1 pod" or "2 pods".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
