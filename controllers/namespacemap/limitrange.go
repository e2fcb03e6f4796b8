// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// ensureLimitRange creates or updates the LimitRange of a remote namespace according to the options.
func (c *Controller) ensureLimitRange(ctx context.Context, nm *offloading.NamespaceMap, namespace string) error {
	key := client.ObjectKey{Namespace: namespace, Name: wire.TenantLimitRange}
	actual := &corev1.LimitRange{}
	err := c.client.Get(ctx, key, actual)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting LimitRange %s, %w", key, err)
	}
	exists, desired := err == nil, corev1.LimitRangeSpec{Limits: c.options.LimitRange}
	switch {
	case !exists && len(desired.Limits) == 0:
		return nil
	case !exists:
		err := c.client.Create(ctx, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{managedByLabel: managedBy},
				Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: client.ObjectKeyFromObject(nm).String()},
			},
			Spec: desired,
		}, client.FieldOwner(fieldManager))
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return fmt.Errorf("creating LimitRange %s, %w", key, err)
		}
		return nil
	case len(desired.Limits) == 0:
		if err := c.client.Delete(ctx, actual); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting LimitRange %s, %w", key, err)
		}
		return nil
	case includes(actual.Spec.Limits, desired.Limits):
		return nil
	}
	changed := actual.DeepCopy()
	changed.Spec = desired
	if err := c.client.Patch(ctx, changed, client.MergeFrom(actual), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("updating LimitRange %s, %w", key, err)
	}
	return nil
}

// includes reports whether the actual limits are equal to the desired limits after the API server has set its defaults:
// a missing default of a container is set to the maximum, and a missing default request to the default.
func includes(actual, desired []corev1.LimitRangeItem) bool {
	if len(actual) != len(desired) {
		return false
	}
	for i := range desired {
		item := *actual[i].DeepCopy()
		if desired[i].Type == corev1.LimitTypeContainer {
			item.Default = only(item.Default, desired[i].Default)
			item.DefaultRequest = only(item.DefaultRequest, desired[i].DefaultRequest)
		}
		if !equality.Semantic.DeepEqual(item, desired[i]) {
			return false
		}
	}
	return true
}

// only returns the resources of list that are also in names. It returns nil if names is empty.
func only(list, names corev1.ResourceList) corev1.ResourceList {
	if len(names) == 0 {
		return names
	}
	kept := corev1.ResourceList{}
	for name := range names {
		if quantity, ok := list[name]; ok {
			kept[name] = quantity
		}
	}
	return kept
}
