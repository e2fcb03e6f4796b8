// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/remotedata"
)

// holdData keeps entries of the copy that are no longer desired but whose remote namespaces contain data of volumes.
// It adds these entries to desired, and reports whether there are any. Other controllers do not withdraw such
// entries, but users may edit the map.
func (c *Controller) holdData(ctx context.Context, local, copied *offloading.NamespaceMap, desired *offloading.NamespaceMapSpec) (bool, error) {
	held, err := c.heldEntries(ctx, local, copied, desired.DesiredMapping)
	if err != nil || len(held) == 0 {
		return false, err
	}
	if desired.DesiredMapping == nil {
		desired.DesiredMapping = map[string]string{}
	}
	maps.Copy(desired.DesiredMapping, held)
	return true, nil
}

// keepData returns the entries that stay in the copy when the original is deleted.
func (c *Controller) keepData(ctx context.Context, local *offloading.NamespaceMap, r copies) (map[string]string, error) {
	copied, err := r.getCopy(ctx, local.Name)
	if err != nil || copied == nil || !r.isCopy(copied) {
		return nil, err
	}
	return c.heldEntries(ctx, local, copied, nil)
}

// heldEntries returns the entries of the copy that are no longer desired but are held by volumes. An Event on the map
// reports them.
func (c *Controller) heldEntries(ctx context.Context, local, copied *offloading.NamespaceMap, desired map[string]string) (map[string]string, error) {
	var dropped []string
	for _, namespace := range slices.Sorted(maps.Keys(copied.Spec.DesiredMapping)) {
		if desired[namespace] != copied.Spec.DesiredMapping[namespace] {
			dropped = append(dropped, namespace)
		}
	}
	if len(dropped) == 0 {
		return nil, nil
	}
	volumes, err := remotedata.List(ctx, c.live)
	if err != nil {
		return nil, err
	}
	volumes = volumes.On(local.Labels[wire.RemoteIDLabel])
	held, holding := map[string]string{}, remotedata.Volumes(nil)
	for _, namespace := range dropped {
		confirmed, err := c.isConfirmed(ctx, local, namespace)
		if err != nil {
			return nil, err
		}
		if data := volumes.In(namespace).Holding(confirmed); len(data) > 0 {
			held[namespace], holding = copied.Spec.DesiredMapping[namespace], append(holding, data...)
		}
	}
	if len(held) == 0 {
		return nil, nil
	}
	c.report.Warn(local, remotedata.HeldReason, replicateAction, fmt.Sprintf("the namespaces %s of provider %s are not deleted, because they have the data of the volumes %s. To use them, offload their namespaces again; otherwise %s",
		strings.Join(slices.Sorted(maps.Values(held)), ", "), local.Name, holding, holding.Remedy(remotedata.Annotate("NamespaceMap"))))
	return held, nil
}

// isConfirmed reports whether a user has confirmed that the data of a namespace may be deleted.
func (c *Controller) isConfirmed(ctx context.Context, local *offloading.NamespaceMap, namespace string) (bool, error) {
	if remotedata.IsConfirmed(local) {
		return true, nil
	}
	nso := &offloading.NamespaceOffloading{}
	key := client.ObjectKey{Namespace: namespace, Name: offloading.NamespaceOffloadingName}
	if err := c.client.Get(ctx, key, nso); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting NamespaceOffloading %s, %w", key, err)
	}
	return remotedata.IsConfirmed(nso), nil
}
