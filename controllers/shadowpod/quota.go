// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/controllers/tenancy"
)

// quotaRetry is how often a pod is reconciled that waits for room in its Quota.
// Nothing is written as long as there is none.
const quotaRetry = 10 * time.Second

// errOverQuota: the pod has to wait, and the reason was reported.
var errOverQuota = errors.New("the pod exceeds a Quota")

// takeQuota counts the pod of shadow against its Quota, or reports why it must
// not be made.
func (c *Controller) takeQuota(ctx context.Context, shadow *unstructured.Unstructured) error {
	if c.options.Quotas == nil {
		return nil
	}
	pod, err := asked(shadow)
	if err != nil {
		return nil //nolint:nilerr // the API server will say what is wrong with it
	}
	refusal, err := c.options.Quotas.Take(ctx, pod)
	if err != nil {
		return err
	}
	if refusal != nil {
		return errors.Join(errOverQuota, c.refuse(ctx, shadow, refusal))
	}
	return nil
}

func (c *Controller) releaseQuota(key types.NamespacedName) {
	if c.options.Quotas != nil {
		c.options.Quotas.Release(key)
	}
}

// checkQuota returns why a running pod must not become as shadow asks for.
func (c *Controller) checkQuota(ctx context.Context, shadow *unstructured.Unstructured) (*tenancy.Refusal, error) {
	if c.options.Quotas == nil {
		return nil, nil
	}
	pod, err := asked(shadow)
	if err != nil {
		return nil, nil //nolint:nilerr // likewise
	}
	pod.Again = true
	return c.options.Quotas.Check(ctx, pod)
}

func asked(shadow *unstructured.Unstructured) (quota.Pod, error) {
	fields, _ := podSpec(shadow)
	spec := &corev1.PodSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, spec); err != nil {
		return quota.Pod{}, fmt.Errorf("reading spec.pod, %w", err)
	}
	phase := recordedPhase(shadow)
	return quota.Pod{Key: client.ObjectKeyFromObject(shadow), Labels: shadow.GetLabels(), Spec: spec, Again: phase != "" && phase != corev1.PodUnknown}, nil
}
