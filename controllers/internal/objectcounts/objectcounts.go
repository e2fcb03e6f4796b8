// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package objectcounts limits how many objects of each kind a consumer may have in a namespace, with a ResourceQuota.
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

// defaultRecountDelay is how long counts are left out that the cluster does not compute.
const defaultRecountDelay = 2 * time.Minute

const fieldOwner = client.FieldOwner(wire.NamespaceMapFieldManager)

// tenantSuffix ends the names of the resources that consumers create in their tenant namespaces.
const tenantSuffix = ".authentication.liqo.io"

// OfRemoteNamespaces returns the counts of a remote namespace.
func OfRemoteNamespaces(counts corev1.ResourceList) corev1.ResourceList { return filter(counts, false) }

// OfTenantNamespaces returns the counts of a tenant namespace: of ResourceSlices and Renews.
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
	// Limits is how many objects of each kind there may be in a namespace, by resources such as count/secrets. Others are not limited.
	Limits corev1.ResourceList
	// RecountDelay is how long counts are left out that the cluster does not compute; 0 is 2 minutes.
	RecountDelay time.Duration
}

// Counts keeps a ResourceQuota in namespaces of consumers. Safe for concurrent use.
type Counts struct {
	client    client.Client
	unguarded client.Client // for what Raise has raised
	options   Options

	// uncounted remembers which objects the cluster does not count, by ResourceQuota.
	uncounted memo.Memo[uncounted]
	// raised remembers which ResourceQuotas Raise has changed.
	raised memo.Memo[bool]
}

// New returns Counts that read and write through c.
func New(c client.Client, options Options) *Counts {
	return &Counts{client: c, unguarded: brake.Unguarded(c), options: options}
}

// uncounted are the resources of a namespace that kube-controller-manager does not count: it learns of new CRDs only after some time. The API
// server denies the creation of objects with a limit and without a count, so these are left out until then.
type uncounted struct {
	resources map[corev1.ResourceName]bool
	until     time.Time
}

// Ensure brings the ResourceQuota of a namespace in line with the limits, and with the additional ones of other resources. It creates it with the
// labels and annotations of metadata.
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

// Raise makes room for so many more objects of one kind until Ensure is called: an object of this cluster must exist even if the consumer has used
// up the limit. The consumer causes this at will, so that it is no fight that delays the limit.
func (c *Counts) Raise(ctx context.Context, namespace string, kind corev1.ResourceName, needed int64) error {
	key := keyOf(namespace)
	actual := &corev1.ResourceQuota{}
	err := c.client.Get(ctx, key, actual)
	if apierrors.IsNotFound(err) {
		return nil // nothing is limited
	}
	if err != nil {
		return fmt.Errorf("getting ResourceQuota %s, %w", key, err)
	}
	desired := maps.Clone(actual.Spec.Hard)
	limit, limited := desired[kind]
	if !limited {
		return nil
	}
	if configured, ok := c.options.Limits[kind]; ok { // not what an earlier call has raised it to
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
	return nil // its event brings us back here
}

// noteUncounted remembers the resources with a limit and without a count. A status that is not there yet denies nothing.
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

// hard returns the limits of a namespace without those that the cluster does not compute at the moment.
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

// Forget drops what is remembered of a namespace that is gone.
func (c *Counts) Forget(namespace string) {
	c.uncounted.Drop(keyOf(namespace))
	c.raised.Drop(keyOf(namespace))
}

// RecountAfter returns when to call Ensure again because of resources that are not counted in the namespace, 0 if there are none.
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

// Changed reports whether more than the numbers of objects has changed, which change with each object.
func Changed(before, now *corev1.ResourceQuota) bool {
	return before.ResourceVersion == now.ResourceVersion || !equality.Semantic.DeepEqual(before.Spec, now.Spec) ||
		!equality.Semantic.DeepEqual(before.Status.Hard, now.Status.Hard) || len(before.Status.Used) != len(now.Status.Used)
}
