// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package objectcounts limits how many objects of each kind a consumer may have in a namespace. A ResourceQuota
// enforces the limits.
package objectcounts

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/memo"
)

// defaultRecountDelay is how long, by default, a limit is left out of the ResourceQuota because the cluster does not
// count the limited kind yet.
const defaultRecountDelay = 2 * time.Minute

const fieldOwner = client.FieldOwner(wire.NamespaceMapFieldManager)

// tenantSuffix is the suffix of the names of limits that apply to tenant namespaces.
const tenantSuffix = ".authentication.liqo.io"

// OfRemoteNamespaces returns the limits that apply to remote namespaces.
func OfRemoteNamespaces(counts corev1.ResourceList) corev1.ResourceList { return filter(counts, false) }

// OfTenantNamespaces returns the limits that apply to tenant namespaces. They limit ResourceSlices and Renews.
func OfTenantNamespaces(counts corev1.ResourceList) corev1.ResourceList { return filter(counts, true) }

func filter(counts corev1.ResourceList, ofTenants bool) corev1.ResourceList {
	counts = maps.Clone(counts)
	maps.DeleteFunc(counts, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return strings.HasSuffix(string(name), tenantSuffix) != ofTenants
	})
	return counts
}

// Options are the settings of Counts.
type Options struct {
	// Limits contains the maximum number of objects of each kind in a namespace. The keys are resources such as
	// count/secrets. Kinds that are not in the list are not limited.
	Limits corev1.ResourceList
	// RecountDelay is how long a limit is omitted from the ResourceQuota because the cluster does not count the kind
	// yet. The default, for 0, is 2 minutes.
	RecountDelay time.Duration
}

// Counts maintains the ResourceQuotas in the namespaces of consumers. It is safe for concurrent use.
type Counts struct {
	client    client.Client
	unguarded client.Client // client for the limits that Raise has changed
	options   Options

	// uncounted contains the resources that the cluster does not count, by ResourceQuota.
	uncounted memo.Memo[uncounted]
	// raised contains the ResourceQuotas that Raise has changed.
	raised memo.Memo[bool]
}

// New returns Counts that use the client c.
func New(c client.Client, options Options) *Counts {
	return &Counts{client: c, unguarded: brake.Unguarded(c), options: options}
}

// uncounted contains the resources in a namespace that kube-controller-manager does not count yet, because it discovers
// new CRDs only after some time. While a resource has a limit but no count, the API server denies the creation of its
// objects. Therefore these limits are omitted until the counts exist.
type uncounted struct {
	resources map[corev1.ResourceName]bool
	until     time.Time
}

// Ensure creates or updates the ResourceQuota of a namespace. additional contains limits for further resources. If the
// ResourceQuota is created, it gets the labels and annotations of metadata.
func (c *Counts) Ensure(ctx context.Context, namespace string, additional corev1.ResourceList, metadata metav1.ObjectMeta) error {
	key, limits := keyOf(namespace), c.options.Limits
	if len(additional) > 0 {
		limits = maps.Clone(additional)
		maps.Copy(limits, c.options.Limits)
	}
	actual := &corev1.ResourceQuota{}
	err := c.client.Get(ctx, key, actual)
	switch {
	case apierrors.IsNotFound(err) && len(limits) == 0:
		return nil
	case apierrors.IsNotFound(err):
		return c.create(ctx, key, limits, metadata)
	case err != nil:
		return fmt.Errorf("getting ResourceQuota %s, %w", key, err)
	}
	c.noteUncounted(actual)
	writer := c.client
	if _, raised := c.raised.Get(key); raised {
		writer = c.unguarded
	}
	if err := c.write(ctx, writer, actual, c.hard(key, limits)); err != nil {
		return err
	}
	c.raised.Drop(key)
	return nil
}

// Raise increases the limit of one kind by the needed number of objects until Ensure is called. It is for objects that
// this cluster must create even if the consumer has reached the limit. A consumer can cause such writes at any time.
// They are not counted as a fight with another client over the ResourceQuota, because the brake for fights would delay
// them.
func (c *Counts) Raise(ctx context.Context, namespace string, kind corev1.ResourceName, needed int64) error {
	key := keyOf(namespace)
	actual := &corev1.ResourceQuota{}
	err := c.client.Get(ctx, key, actual)
	if apierrors.IsNotFound(err) {
		return nil // no kind is limited, so there is no ResourceQuota
	}
	if err != nil {
		return fmt.Errorf("getting ResourceQuota %s, %w", key, err)
	}
	desired := maps.Clone(actual.Spec.Hard)
	limit, limited := desired[kind]
	if !limited {
		return nil
	}
	// The increase is relative to the configured limit, so that repeated calls do not add up.
	if configured, ok := c.options.Limits[kind]; ok {
		limit = configured.DeepCopy()
	}
	if used := actual.Status.Used[kind]; used.Cmp(limit) > 0 {
		limit = used.DeepCopy()
	}
	limit.Add(*resource.NewQuantity(needed, resource.DecimalSI))
	desired[kind] = limit
	c.raised.Set(key, true)
	return c.write(ctx, c.unguarded, actual, desired)
}

func (c *Counts) write(ctx context.Context, writer client.Client, actual *corev1.ResourceQuota, desired corev1.ResourceList) error {
	if equality.Semantic.DeepEqual(actual.Spec.Hard, desired) || len(actual.Spec.Hard) == 0 && len(desired) == 0 {
		return nil
	}
	changed := actual.DeepCopy()
	changed.Spec.Hard = desired
	if err := writer.Patch(ctx, changed, client.MergeFrom(actual), fieldOwner); err != nil {
		return fmt.Errorf("updating ResourceQuota %s, %w", client.ObjectKeyFromObject(actual), err)
	}
	return nil
}

func (c *Counts) create(ctx context.Context, key types.NamespacedName, limits corev1.ResourceList, metadata metav1.ObjectMeta) error {
	metadata.Namespace, metadata.Name = key.Namespace, key.Name
	quota := &corev1.ResourceQuota{ObjectMeta: metadata, Spec: corev1.ResourceQuotaSpec{Hard: c.hard(key, limits)}}
	err := c.client.Create(ctx, quota, fieldOwner)
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("creating ResourceQuota %s, %w", key, err)
	}
	return nil // the watch event of the ResourceQuota triggers another reconciliation
}

// noteUncounted records the resources that have a limit but no count. If the ResourceQuota has no status, the API
// server denies nothing yet, so nothing is recorded.
func (c *Counts) noteUncounted(actual *corev1.ResourceQuota) {
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

// hard returns the limits of a namespace. It omits the limits of resources that the cluster does not count at the
// moment.
func (c *Counts) hard(key types.NamespacedName, limits corev1.ResourceList) corev1.ResourceList {
	left, ok := c.uncounted.Get(key)
	if !ok {
		return limits
	}
	if time.Now().After(left.until) {
		c.uncounted.Drop(key)
		return limits
	}
	counts := maps.Clone(limits)
	maps.DeleteFunc(counts, func(name corev1.ResourceName, _ resource.Quantity) bool { return left.resources[name] })
	return counts
}

// Forget drops the state of a namespace that no longer exists.
func (c *Counts) Forget(namespace string) {
	c.uncounted.Drop(keyOf(namespace))
	c.raised.Drop(keyOf(namespace))
}

// RecountAfter returns the delay until Ensure must be called again, because the cluster does not count some resources
// of the namespace. It returns 0 if all resources are counted.
func (c *Counts) RecountAfter(namespace string) time.Duration {
	if _, ok := c.uncounted.Get(keyOf(namespace)); ok {
		return c.recountDelay()
	}
	return 0
}

func (c *Counts) recountDelay() time.Duration {
	if c.options.RecountDelay > 0 {
		return c.options.RecountDelay
	}
	return defaultRecountDelay
}

func keyOf(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: wire.ObjectCountsQuota}
}

// Changed reports whether a change to a ResourceQuota is relevant. Changes of the counts are not, because every new
// object causes one.
func Changed(before, now *corev1.ResourceQuota) bool {
	return before.ResourceVersion == now.ResourceVersion || !equality.Semantic.DeepEqual(before.Spec, now.Spec) ||
		!equality.Semantic.DeepEqual(before.Status.Hard, now.Status.Hard) || len(before.Status.Used) != len(now.Status.Used)
}
