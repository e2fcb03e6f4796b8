// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/objectcounts"
)

// countedPolicies is the name of the resource in a ResourceQuota that counts NetworkPolicies.
const countedPolicies = "count/networkpolicies.networking.k8s.io"

// remoteCounts returns the limits of a remote namespace. The limit of NetworkPolicies is increased by the number of
// NetworkPolicies that this controller creates there, because they are counted, too.
func remoteCounts(counts corev1.ResourceList) corev1.ResourceList {
	limits := objectcounts.OfRemoteNamespaces(counts)
	if policies, limited := limits[countedPolicies]; limited {
		policies.Add(*resource.NewQuantity(int64(len(wire.EgressPolicyNames())), resource.DecimalSI))
		limits[countedPolicies] = policies
	}
	return limits
}

// ensureObjectCounts creates or updates the ResourceQuota of a remote namespace according to the options.
func (c *Controller) ensureObjectCounts(ctx context.Context, nm *offloading.NamespaceMap, namespace string) error {
	granted, err := c.getGrantedCounts(ctx, nm, namespace)
	if err != nil {
		return err
	}
	return c.counts.Ensure(ctx, namespace, granted, metav1.ObjectMeta{
		Labels:      map[string]string{managedByLabel: managedBy},
		Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: client.ObjectKeyFromObject(nm).String()},
	})
}

// isCountExceeded reports whether an object was denied because the consumer has reached its maximum number of objects
// of the kind.
func isCountExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: "+wire.ObjectCountsQuota)
}

// recountAfter returns the delay until a map is reconciled again, because resources are not counted in its namespaces
// yet, or because its consumer may have been granted other resources; 0 means never.
func (c *Controller) recountAfter(nm *offloading.NamespaceMap) (wait time.Duration) {
	for _, namespace := range nm.Spec.DesiredMapping {
		for _, after := range []time.Duration{c.counts.RecountAfter(namespace), c.regrantAfter(namespace)} {
			if after > 0 && (wait == 0 || after < wait) {
				wait = after
			}
		}
	}
	return wait
}
