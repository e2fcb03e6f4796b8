// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/dynamicclient"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/internal/printable"
)

// refusedReason is the reason of the Event and of the condition about a pod that this cluster does not allow.
const refusedReason = "RefusedByProvider"

// judge returns why this cluster does not allow the pod of shadow, or nil if it is allowed. Ephemeral containers are
// judged separately, because they cannot be removed from a pod: a refused one must not prevent other changes to the pod
// or its recreation.
func (c *Controller) judge(ctx context.Context, shadow *unstructured.Unstructured) (*tenancy.Refusal, error) {
	if refusal := oversized(shadow); refusal != nil {
		return refusal, nil
	}
	spec, ok := podSpec(shadow)
	if _, some := spec[ephemeralContainers]; ok && some {
		spec = maps.Clone(spec)
		delete(spec, ephemeralContainers)
	}
	return c.judgeSpec(ctx, shadow, spec, ok)
}

// oversized returns the refusal of a ShadowPod that was not decoded because it exceeds the size limits, and nil for
// any other ShadowPod.
func oversized(shadow *unstructured.Unstructured) *tenancy.Refusal {
	excess := dynamicclient.Excess(shadow)
	if excess == "" {
		return nil
	}
	return &tenancy.Refusal{Field: "a ShadowPod of this size", Rule: excess, Remedy: "reduce it, for example by moving values of env into a ConfigMap"}
}

// judgeEphemeral returns why this cluster does not allow the pod of shadow with its ephemeral containers, or nil if
// they are allowed.
func (c *Controller) judgeEphemeral(ctx context.Context, shadow *unstructured.Unstructured) (*tenancy.Refusal, error) {
	spec, ok := podSpec(shadow)
	return c.judgeSpec(ctx, shadow, spec, ok)
}

func (c *Controller) judgeSpec(ctx context.Context, shadow *unstructured.Unstructured, spec map[string]any, ok bool) (*tenancy.Refusal, error) {
	if c.options.Policy == nil {
		return nil, nil
	}
	origin := shadow.GetLabels()[wire.OriginLabel]
	if !ok || origin == "" {
		return nil, nil // create reports the refusal
	}
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: shadow.GetNamespace()}, namespace); err != nil {
		return nil, fmt.Errorf("getting namespace %s, %w", shadow.GetNamespace(), err)
	}
	if refusal := tenancy.CheckNamespace(namespace, origin); refusal != nil {
		return refusal, nil
	}
	return c.options.Policy.CheckPod(namespace, shadow.GetLabels(), shadow.GetAnnotations(), spec), nil
}

// refusalRetryInterval is how often a pod that the rules of its namespace do not allow is tried again. Changes of the
// ShadowPod and of these rules trigger an attempt at once, so the interval only matters if such an event is lost.
const refusalRetryInterval = 30 * time.Minute

// refuseForNow reports a refusal by judge, and returns the delay until the next attempt. If err is not nil, there is no
// decision yet, and err is returned.
func (c *Controller) refuseForNow(
	ctx context.Context, shadow *unstructured.Unstructured, action string, refusal *tenancy.Refusal, err error,
) (time.Duration, error) {
	if err != nil {
		return 0, err
	}
	if err := c.refuse(ctx, shadow, action, refusal); err != nil || dynamicclient.Excess(shadow) != "" {
		return 0, err // only a change of the ShadowPod makes it smaller
	}
	return wait.Jitter(refusalRetryInterval, 0.5), nil
}

// refuse reports why the pod of a ShadowPod was not created or changed: in the status of the ShadowPod, and in an
// Event that is reflected to the consumer's pod.
func (c *Controller) refuse(ctx context.Context, shadow *unstructured.Unstructured, action string, refusal *tenancy.Refusal) error {
	message := refusal.Error()
	if action == updateAction {
		message = "the running pod was left unchanged: " + message
	}
	c.report.Warn(shadow, refusedReason, action, message)
	return c.setAdmitted(ctx, shadow, metav1.ConditionFalse, refusedReason, message)
}

// admitted updates the Admitted condition after an earlier refusal.
func (c *Controller) admitted(ctx context.Context, shadow *unstructured.Unstructured) error {
	if condition := admission(shadow); condition == nil || condition.Status == metav1.ConditionTrue {
		return nil
	}
	return c.setAdmitted(ctx, shadow, metav1.ConditionTrue, offloading.ShadowPodAdmitted, "")
}

// admission returns the Admitted condition of shadow, or nil if it is missing or invalid.
func admission(shadow *unstructured.Unstructured) *metav1.Condition {
	return meta.FindStatusCondition(conditionsOf(shadow), offloading.ShadowPodAdmitted)
}

func conditionsOf(shadow *unstructured.Unstructured) []metav1.Condition {
	var status offloading.ShadowPodStatus
	fields, _ := shadow.Object["status"].(map[string]any)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status) != nil {
		return nil
	}
	return status.Conditions
}

func (c *Controller) setAdmitted(ctx context.Context, shadow *unstructured.Unstructured, status metav1.ConditionStatus, reason, message string) error {
	conditions := conditionsOf(shadow)
	changed := meta.SetStatusCondition(&conditions, metav1.Condition{
		Type: offloading.ShadowPodAdmitted, Status: status, Reason: reason, Message: printable.Message(message),
		ObservedGeneration: shadow.GetGeneration(), LastTransitionTime: metav1.NewTime(c.now()),
	})
	if !changed {
		return nil
	}
	var patch jsonpatch.Patch
	if _, ok := shadow.Object["status"].(map[string]any); ok {
		patch.Add("/status/conditions", conditions)
	} else {
		patch.Add("/status", map[string]any{"phase": corev1.PodUnknown, "conditions": conditions})
	}
	bytes, err := patch.For(shadow.GetUID())
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(shadow)
	if err := c.client.Status().Patch(ctx, partial(shadow.GroupVersionKind(), key), bytes); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the condition %s of ShadowPod %s, %w", offloading.ShadowPodAdmitted, key, err)
	}
	return nil
}

func (c *Controller) now() time.Time {
	if c.options.Clock == nil {
		return time.Now()
	}
	return c.options.Clock.Now()
}
