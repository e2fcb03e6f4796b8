// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// remoteNamespaces returns the names of the namespaces that were created for the map, in any phase. The map's status is
// not sufficient, because the consumer can delay the deletion of a namespace with a finalizer.
func (c *Controller) remoteNamespaces(ctx context.Context, nm *offloading.NamespaceMap) (sets.Set[string], error) {
	list := &corev1.NamespaceList{}
	if err := c.client.List(ctx, list, client.MatchingLabels{wire.RemoteClusterIDLabel: nm.Labels[wire.OriginIDLabel]}); err != nil {
		return nil, fmt.Errorf("listing the namespaces of consumer %s, %w", nm.Labels[wire.OriginIDLabel], err)
	}
	names := sets.New[string]()
	for i := range list.Items {
		if isMadeFor(&list.Items[i], nm) {
			names.Insert(list.Items[i].Name)
		}
	}
	return names, nil
}

// countNamespaces returns the number of namespaces of the consumer, including namespaces that are announced but not
// created yet.
func countNamespaces(nm *offloading.NamespaceMap, owned sets.Set[string]) int {
	names := owned.Clone()
	for _, status := range nm.Status.CurrentMapping {
		if !isFailed(status) {
			names.Insert(status.RemoteNamespace)
		}
	}
	return names.Len()
}

// maxNamespaces returns the maximum number of namespaces of a consumer.
func maxNamespaces(limits consumerLimits) int {
	maximum, limited := limits.Number(tenantlimits.MaxNamespaces)
	if !limited || maximum == 0 || maximum > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(maximum)
}

// consumerLimits contains the limits of a consumer, and the annotations of its tenant namespace that set some of them.
type consumerLimits struct {
	tenantlimits.Limits
	annotations map[string]string
	invalid     bool // at least one limit is invalid and is not applied
}

// limitsOf returns the limits of the map's consumer. Invalid limits are not applied, and an Event reports them.
func (c *Controller) limitsOf(ctx context.Context, nm *offloading.NamespaceMap) (consumerLimits, error) {
	tenant := &corev1.Namespace{}
	if err := c.uncached.Get(ctx, client.ObjectKey{Name: nm.Namespace}, tenant); err != nil {
		return consumerLimits{}, fmt.Errorf("getting tenant namespace %s, %w", nm.Namespace, err)
	}
	annotations := tenantlimits.Annotations(tenant.Annotations)
	limits, err := c.options.Tenancy.Limits.With(annotations)
	if err != nil {
		c.report.Warn(nm, invalidLimitsReason, mapAction, fmt.Sprintf("limits of namespace %s are not valid, and the defaults apply in their place: %s. Correct the annotations of the namespace", nm.Namespace, err))
	}
	return consumerLimits{limits, annotations, err != nil}, nil
}

// reportLeftBehind reports the namespaces that were created for the map but are no longer in it, and returns whether
// there are any. They are not deleted, because the consumer has not requested this: either an earlier version has lost
// track of them, or the map was restored from a backup.
func (c *Controller) reportLeftBehind(nm *offloading.NamespaceMap, current map[string]offloading.RemoteNamespaceStatus, owned sets.Set[string]) bool {
	left := owned.Clone()
	for _, status := range current {
		left.Delete(status.RemoteNamespace)
	}
	for _, status := range nm.Status.CurrentMapping {
		left.Delete(status.RemoteNamespace) // the namespace is being deleted, or is gone but still in the cache
	}
	if left.Len() == 0 {
		return false
	}
	names := sets.List(left)
	c.report.Warn(nm, leftBehindReason, mapAction, fmt.Sprintf("%d namespaces of this consumer are not in the NamespaceMap, and count towards its limit: %s. Delete them, if nothing in them is needed",
		len(names), strings.Join(names[:min(len(names), 10)], ", ")))
	return true
}
