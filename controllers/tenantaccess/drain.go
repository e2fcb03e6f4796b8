// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantaccess

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/internal/remotedata"
)

// quotaOf returns the Quota that refractctl has created for a consumer, or nil if there is none.
func quotaOf(ctx context.Context, reader client.Reader, namespace, consumer string) (*offloading.Quota, error) {
	quotas := &offloading.QuotaList{}
	if err := reader.List(ctx, quotas, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the Quotas in namespace %s, %w", namespace, err)
	}
	for i := range quotas.Items {
		if quotas.Items[i].Spec.User == consumer {
			return &quotas.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // as documented
}

// setCordon cordons the Quota of a consumer, or ends a cordon that it set earlier. A cordon that an administrator has
// set is kept. done reports whether the Quota has the desired state.
func (c *Controller) setCordon(ctx context.Context, tenant *auth.Tenant, cordoned bool) (done bool, err error) {
	consumer := string(tenant.Spec.ClusterID)
	quota, err := quotaOf(ctx, c.client, tenant.Namespace, consumer)
	if err != nil {
		return false, err
	}
	if quota == nil {
		if cordoned {
			c.report.Warn(tenant, quotaNotFoundReason, admitAction, fmt.Sprintf("consumer %s has no Quota that could be cordoned, so it may create pods as long as it has access: enable Quotas (controllerManager.config.enableResourceEnforcement) and run refractctl peer again",
				consumer))
		}
		return !cordoned, nil
	}
	_, byTenant := quota.Annotations[wire.CordonTenantAnnotation]
	if cordoned && ptr.Deref(quota.Spec.Cordoned, false) || !cordoned && !byTenant {
		return true, nil
	}
	if !cordoned {
		if err := fresh.Check(ctx, c.client, c.live, tenant); err != nil {
			return false, err
		}
	}
	return true, c.patchQuota(ctx, quota, cordoned)
}

// patchQuota cordons a Quota and records that the Tenant is the reason, or reverts both.
func (c *Controller) patchQuota(ctx context.Context, quota *offloading.Quota, cordoned bool) error {
	desired := quota.DeepCopy()
	if cordoned {
		desired.Spec.Cordoned = ptr.To(true)
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, wire.CordonTenantAnnotation, "true")
	} else {
		desired.Spec.Cordoned = nil
		delete(desired.Annotations, wire.CordonTenantAnnotation)
	}
	if equality.Semantic.DeepEqual(quota, desired) {
		return nil
	}
	if err := c.client.Patch(ctx, desired, client.MergeFromWithOptions(quota, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching Quota %s, %w", client.ObjectKeyFromObject(quota), err)
	}
	return nil
}

// isReplicated reports whether a consumer sent the object.
func isReplicated(object client.Object) bool {
	return object.GetLabels()[wire.ReplicatedLabel] == "true"
}

// deleteMaps deletes the NamespaceMaps of a drained consumer, and thereby its remote namespaces with their data. Data
// does not prevent this. Otherwise the consumer could keep its pods running by creating a PersistentVolumeClaim.
// refractctl drain tenant checks for such claims before it drains a consumer.
func (c *Controller) deleteMaps(ctx context.Context, tenant *auth.Tenant) error {
	maps := &offloading.NamespaceMapList{}
	if err := c.client.List(ctx, maps, client.InNamespace(tenant.Namespace), client.MatchingLabels{wire.ReplicatedLabel: "true"}); err != nil {
		return fmt.Errorf("listing the NamespaceMaps of consumer %s, %w", tenant.Spec.ClusterID, err)
	}
	for i := range maps.Items {
		mapping := &maps.Items[i]
		if mapping.DeletionTimestamp != nil {
			continue
		}
		if !remotedata.IsConfirmed(mapping) {
			confirmed := mapping.DeepCopy()
			metav1.SetMetaDataAnnotation(&confirmed.ObjectMeta, wire.DeleteDataAnnotation, "true")
			if err := c.client.Patch(ctx, confirmed, client.MergeFrom(mapping)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("annotating NamespaceMap %s, %w", client.ObjectKeyFromObject(mapping), err)
			}
		}
		if err := c.client.Delete(ctx, mapping, client.Preconditions{UID: &mapping.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting NamespaceMap %s, %w", client.ObjectKeyFromObject(mapping), err)
		}
		c.report.Tell(tenant, mapping, drainedReason, admitAction, fmt.Sprintf("consumer %s is drained: deleted NamespaceMap %s, and with it its remote namespaces", tenant.Spec.ClusterID, mapping.Name))
	}
	return nil
}
