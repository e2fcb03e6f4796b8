// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/ledger"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/apifailure"
)

// quotaRetryInterval is how often a pod that exceeds its Quota is reconciled. Nothing is written as long as the pod
// exceeds the Quota.
const quotaRetryInterval = 10 * time.Second

// errOverQuota means that the pod has to wait because it exceeds a Quota, and that this was reported.
var errOverQuota = errors.New("the pod exceeds a Quota")

// reserveCreation reserves the resources of shadow's pod in its Quota, or reports why the pod must not be created.
// pod is the object that will be sent.
func (c *Controller) reserveCreation(ctx context.Context, shadow, pod *unstructured.Unstructured) error {
	if c.options.Quotas == nil {
		return nil
	}
	spec, err := typedSpec(pod.Object["spec"])
	if err != nil { // a pod that cannot be counted is not created
		return errors.Join(errOverQuota, c.refuse(ctx, shadow, createAction, &tenancy.Refusal{Field: "spec.pod", Rule: err.Error(), Remedy: "use the spec of a pod"}))
	}
	spec, err = c.withDefaults(ctx, pod, spec)
	if err != nil {
		return err
	}
	refusal, err := c.options.Quotas.ReserveResources(ctx, ledger.Request{Key: client.ObjectKeyFromObject(shadow), Labels: shadow.GetLabels(), Spec: spec, Returns: returns(shadow)})
	if err != nil {
		return err
	}
	if refusal != nil {
		return errors.Join(errOverQuota, c.refuse(ctx, shadow, createAction, &refusal.Refusal))
	}
	return nil
}

// withDefaults returns the spec that the pod will have. If the consumer has a Quota, it sends a dry-run creation of a
// pod that does not declare all amounts that the Quota counts, because a LimitRange may add requests and limits to its
// containers, and a runtime class an overhead.
func (c *Controller) withDefaults(ctx context.Context, pod *unstructured.Unstructured, spec *corev1.PodSpec) (*corev1.PodSpec, error) {
	names, limited, err := c.options.Quotas.LimitedResources(ctx, pod.GetLabels())
	if err != nil || !limited || ledger.IsSized(spec, names) {
		return spec, err
	}
	tried := pod.DeepCopy()
	switch err := c.client.Create(ctx, tried, client.DryRunAll); {
	case apifailure.IsUndecided(err):
		return nil, fmt.Errorf("asking for the defaults of pod %s, %w", client.ObjectKeyFromObject(pod), err)
	case err != nil:
		return spec, nil //nolint:nilerr // the creation fails with the same error, which is then reported
	}
	return typedSpec(tried.Object["spec"])
}

// reserveChange reserves the changed sizes of a running pod in its Quota, or returns why the change is refused.
func (c *Controller) reserveChange(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, spec map[string]any, last *asked.Record) (*tenancy.Refusal, error) {
	if c.options.Quotas == nil {
		return nil, nil
	}
	changed, replaces := changedPod(spec, pod, last)
	refusal, err := c.options.Quotas.ReserveResources(ctx, ledger.Request{
		Key: client.ObjectKeyFromObject(shadow), Labels: shadow.GetLabels(), Spec: &changed.Spec, Present: pod, Replaces: replaces,
	})
	if refusal == nil || err != nil {
		return nil, err
	}
	return &refusal.Refusal, nil
}

// settleQuota settles the reservation of a pod that was created or changed.
func (c *Controller) settleQuota(pod *corev1.Pod) {
	if c.options.Quotas != nil {
		c.options.Quotas.SettleReservation(pod)
	}
}

// releaseQuota ends the reservation of a write that was not executed.
func (c *Controller) releaseQuota(key types.NamespacedName) {
	if c.options.Quotas != nil {
		c.options.Quotas.ReleaseReservation(key)
	}
}

// isDecided reports whether err is a rejection by the API server, which means that the request was not executed.
func isDecided(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 && !apierrors.IsTimeout(err)
}

// unseenPodDelay is the delay until a reservation without a ShadowPod is compared with the cache again.
const unseenPodDelay = time.Second

// endReservation ends the reservation of a pod whose ShadowPod is gone, as soon as the cache counts the pod instead, or
// the pod does not exist. If the reservation ended with the ShadowPod, a pod that the cache does not show yet would
// count nowhere, and others could be created in its place. It returns the delay until the next call; 0 means that none
// is needed.
func (c *Controller) endReservation(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	if c.options.Quotas == nil {
		return 0, nil
	}
	cached, err := c.pod(ctx, key)
	if err != nil || !c.options.Quotas.ObservePod(key, cached) {
		return 0, err
	}
	pod := &corev1.Pod{}
	err = c.uncached.Get(ctx, key, pod)
	switch {
	case apierrors.IsNotFound(err):
		c.options.Quotas.DropReservation(key)
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("getting pod %s, which has reserved resources, %w", key, err)
	}
	return c.holdReservation(key, pod), nil
}

// holdReservation keeps the reservation for an existing pod until the cache shows the pod, and returns the delay until
// the next call of endReservation. A pod without the label of this controller never gets into the cache, and counts in no Quota.
func (c *Controller) holdReservation(key types.NamespacedName, pod *corev1.Pod) time.Duration {
	if pod.Labels[wire.ManagedByLabel] != wire.ManagedByShadowPod {
		c.options.Quotas.DropReservation(key)
		return 0
	}
	c.options.Quotas.SettleReservation(pod)
	return unseenPodDelay
}

func typedSpec(fields any) (*corev1.PodSpec, error) {
	spec := &corev1.PodSpec{}
	known, _ := fields.(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(known, spec); err != nil {
		return nil, fmt.Errorf("reading spec.pod, %w", err)
	}
	return spec, nil
}

// returns reports whether the pod of shadow is lost and would be recreated with the spec that it ran with.
func returns(shadow *unstructured.Unstructured) bool {
	if phase := recordedPhase(shadow); phase == "" || phase == corev1.PodUnknown {
		return false
	}
	return shadow.GetGeneration() <= 1 || recordedHash(shadow) == specHash(shadow)
}

// recordedHash returns the hash of the pod's last spec from the status of shadow. It is empty if the spec was never
// changed.
func recordedHash(shadow *unstructured.Unstructured) string {
	hash, _, err := unstructured.NestedString(shadow.Object, "status", "podSpecHash")
	if err != nil {
		return ""
	}
	return hash
}

// specHash returns a hash of the pod spec in shadow. Ephemeral containers are left out, because they are not
// recreated with the pod.
func specHash(shadow *unstructured.Unstructured) string {
	spec, _ := podSpec(shadow)
	if _, has := spec[ephemeralContainers]; has {
		spec = maps.Clone(spec)
		delete(spec, ephemeralContainers)
	}
	text, err := json.Marshal(spec) // json.Marshal sorts the fields
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
