// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenantcondition preserves the condition of a consumer's Tenant (Active, Cordoned or Drained) when the Tenant
// is deleted on the provider.
//
// The user who joins a consumer may delete the consumer's Tenant to end a peering, and create it again to start another
// one. This must not undo a cordon or a drain. Therefore the condition and the UID of the Tenant are recorded on the
// tenant namespace, which this user cannot write. A Tenant with another UID gets the recorded condition, unless its own
// is at least as severe. The record is removed when an administrator sets the recorded Tenant to Active. An admission
// policy of the chart admits the deletion of a cordoned or drained Tenant once the record exists.
package tenantcondition

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/fresh"
)

// Record contains the condition that an administrator has set on a Tenant, and the UID of the Tenant. The zero value
// stands for no record.
type Record struct {
	Condition auth.TenantCondition
	UID       types.UID
}

// parseRecord returns the record on a tenant namespace. It returns an empty record if the annotation contains no valid
// condition.
func parseRecord(namespace client.Object) Record {
	condition, uid, _ := strings.Cut(namespace.GetAnnotations()[wire.TenantConditionAnnotation], "/")
	if severity(auth.TenantCondition(condition)) == 0 {
		return Record{}
	}
	return Record{Condition: auth.TenantCondition(condition), UID: types.UID(uid)}
}

// IsMissingIn reports whether a Tenant lacks the recorded condition: it is not the recorded Tenant, and its condition
// is less severe than the recorded one.
func (r Record) IsMissingIn(tenant *auth.Tenant) bool {
	return r.UID != tenant.UID && severity(tenant.Spec.TenantCondition) < severity(r.Condition)
}

// ReadRecord returns the record on a tenant namespace.
func ReadRecord(ctx context.Context, reader client.Reader, namespace string) (Record, error) {
	found := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: namespace}, found); err != nil {
		return Record{}, fmt.Errorf("getting Namespace %s, %w", namespace, err)
	}
	return parseRecord(found), nil
}

// RestoreCondition sets the recorded condition on a Tenant that lacks it. It returns the restored condition, or an
// empty condition if there was nothing to restore.
func RestoreCondition(ctx context.Context, c client.Client, live client.Reader, tenant *auth.Tenant) (auth.TenantCondition, error) {
	record, err := ReadRecord(ctx, live, tenant.Namespace)
	if err != nil || !record.IsMissingIn(tenant) {
		return "", err
	}
	desired := tenant.DeepCopy()
	desired.Spec.TenantCondition = record.Condition
	// The Tenant is updated before the record. In the opposite order, a failure in between would leave a record with
	// the UID of an Active Tenant, and RecordCondition would remove this record.
	if err := c.Patch(ctx, desired, client.MergeFromWithOptions(tenant, client.MergeFromWithOptimisticLock{})); err != nil {
		return "", fmt.Errorf("restoring spec.tenantCondition of Tenant %s, %w", client.ObjectKeyFromObject(tenant), err)
	}
	return record.Condition, writeRecord(ctx, c, tenant.Namespace, Record{Condition: record.Condition, UID: tenant.UID})
}

// RecordCondition records the condition of a Tenant. If the Tenant is Active, it removes the Tenant's record instead.
// If the record is of another Tenant, it is replaced only if the new condition is at least as severe.
func RecordCondition(ctx context.Context, c client.Client, live client.Reader, tenant *auth.Tenant) error {
	record, err := ReadRecord(ctx, live, tenant.Namespace)
	if err != nil {
		return err
	}
	desired := Record{}
	if severity(tenant.Spec.TenantCondition) > 0 {
		desired = Record{Condition: tenant.Spec.TenantCondition, UID: tenant.UID}
	}
	isOfAnother := record.UID != tenant.UID && severity(desired.Condition) < severity(record.Condition)
	if isOfAnother || record == desired {
		return nil
	}
	if err := fresh.Check(ctx, c, live, tenant); err != nil {
		return err
	}
	return writeRecord(ctx, c, tenant.Namespace, desired)
}

func writeRecord(ctx context.Context, c client.Client, namespace string, record Record) error {
	var value any
	if record != (Record{}) {
		value = string(record.Condition) + "/" + string(record.UID)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{wire.TenantConditionAnnotation: value}}})
	if err != nil {
		return err
	}
	object := &corev1.Namespace{}
	object.Name = namespace
	if err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotating Namespace %s, %w", namespace, err)
	}
	return nil
}

// severity ranks conditions by how much they restrict a consumer. It returns 0 for Active and for unknown conditions.
func severity(condition auth.TenantCondition) int {
	switch condition {
	case auth.TenantCordoned:
		return 1
	case auth.TenantDrained:
		return 2
	}
	return 0
}
