// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// defaultRecountDelay is how long counts are left out that the cluster does not compute.
const defaultRecountDelay = 2 * time.Minute

// uncounted are the resources of a namespace that kube-controller-manager does not count: it learns of new CRDs only after some time. The API
// server denies the creation of objects that are to be counted and are not, so these are left out until then.
type uncounted struct {
	resources map[corev1.ResourceName]bool
	until     time.Time
}

// ensureObjectCounts brings the ResourceQuota of a remote namespace in line with the options.
func (c *Controller) ensureObjectCounts(ctx context.Context, nm *offloading.NamespaceMap, namespace string) error {
	key := types.NamespacedName{Namespace: namespace, Name: wire.ObjectCountsQuota}
	actual := &corev1.ResourceQuota{}
	err := c.client.Get(ctx, key, actual)
	switch {
	case apierrors.IsNotFound(err) && len(c.options.ObjectCounts) == 0:
		return nil
	case apierrors.IsNotFound(err):
		return c.createObjectCounts(ctx, nm, key)
	case err != nil:
		return fmt.Errorf("getting ResourceQuota %s, %w", key, err)
	}
	c.noteUncounted(actual)
	desired := c.objectCounts(namespace)
	if equality.Semantic.DeepEqual(actual.Spec.Hard, desired) || len(actual.Spec.Hard) == 0 && len(desired) == 0 {
		return nil
	}
	changed := actual.DeepCopy()
	changed.Spec.Hard = desired
	if err := c.client.Patch(ctx, changed, client.MergeFrom(actual), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("updating ResourceQuota %s, %w", key, err)
	}
	return nil
}

func (c *Controller) createObjectCounts(ctx context.Context, nm *offloading.NamespaceMap, key types.NamespacedName) error {
	err := c.client.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{managedByLabel: managedBy},
			Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: client.ObjectKeyFromObject(nm).String()},
		},
		Spec: corev1.ResourceQuotaSpec{Hard: c.objectCounts(key.Namespace)},
	}, client.FieldOwner(fieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("creating ResourceQuota %s, %w", key, err)
	}
	return nil // its event brings us back here
}

// noteUncounted remembers the resources that are to be counted and have no count. A status that is not there yet denies nothing.
func (c *Controller) noteUncounted(actual *corev1.ResourceQuota) {
	missing := map[corev1.ResourceName]bool{}
	for name := range actual.Status.Hard {
		if _, counted := actual.Status.Used[name]; !counted {
			missing[name] = true
		}
	}
	if len(missing) > 0 {
		c.uncounted.Set(client.ObjectKeyFromObject(actual), uncounted{missing, time.Now().Add(c.recountDelay())})
	}
}

// objectCounts returns the counts of a namespace without those that the cluster does not compute at the moment.
func (c *Controller) objectCounts(namespace string) corev1.ResourceList {
	key := types.NamespacedName{Namespace: namespace, Name: wire.ObjectCountsQuota}
	left, ok := c.uncounted.Get(key)
	if !ok {
		return c.options.ObjectCounts
	}
	if time.Now().After(left.until) {
		c.uncounted.Drop(key)
		return c.options.ObjectCounts
	}
	counts := maps.Clone(c.options.ObjectCounts)
	maps.DeleteFunc(counts, func(name corev1.ResourceName, _ resource.Quantity) bool { return left.resources[name] })
	return counts
}

// recountAfter returns when a map is to be reconciled because of the resources that are not counted in its namespaces, 0 if there are none.
func (c *Controller) recountAfter(nm *offloading.NamespaceMap) time.Duration {
	for _, namespace := range nm.Spec.DesiredMapping {
		if _, ok := c.uncounted.Get(types.NamespacedName{Namespace: namespace, Name: wire.ObjectCountsQuota}); ok {
			return c.recountDelay()
		}
	}
	return 0
}

func (c *Controller) recountDelay() time.Duration {
	if c.options.RecountDelay > 0 {
		return c.options.RecountDelay
	}
	return defaultRecountDelay
}
