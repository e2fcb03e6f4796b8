// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// checkTenantLimits returns an error if this command cannot set the limits. Only the provider may set them.
func (o *Options) checkTenantLimits(context.Context) error {
	switch {
	case len(o.TenantLimits) == 0:
		return nil
	case o.Provider.invitation != nil:
		return errors.New("--tenant-limit cannot be set with an invitation: the administrator of the provider sets limits with refractctl generate peering-user")
	case o.Provider.liqo:
		return fmt.Errorf("--tenant-limit cannot be set: cluster %s runs Liqo, which has no such limits", o.Provider.Name)
	}
	for name, value := range o.TenantLimits {
		setting, err := tenantlimits.Lookup(name)
		if err == nil && value != nil {
			err = setting.Check(*value)
		}
		if err != nil {
			return fmt.Errorf("--tenant-limit: %w", err)
		}
	}
	return nil
}

// setTenantLimits annotates the consumer's tenant namespace on the provider.
func (o *Options) setTenantLimits(ctx context.Context) error {
	if len(o.TenantLimits) == 0 {
		return nil
	}
	annotations := map[string]*string{}
	for name, value := range o.TenantLimits {
		annotations[tenantlimits.AnnotationPrefix+name] = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding the limits of consumer %s, %w", o.Consumer.ID(), err)
	}
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.TenantNamespace(o.Consumer.ID())}}
	if err := o.Provider.Client.Patch(ctx, tenant, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return fmt.Errorf("cluster %s: annotating namespace %s with limits, %w", o.Provider.Name, tenant.Name, err)
	}
	return nil
}
