// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/remotedata"
)

// maxNamedClaims is the maximum number of claims that an Event lists.
const maxNamedClaims = 8

// keepsData reports whether a remote namespace is kept although its map is deleted, because it contains data and the
// consumer has not withdrawn it. This is reported by Events about the map and about the namespace, which remains after
// the map.
func (c *Controller) keepsData(ctx context.Context, nm *offloading.NamespaceMap, local, remoteNamespace string) (bool, error) {
	if remotedata.IsConfirmed(nm) {
		return false, nil
	}
	namespace := &corev1.Namespace{}
	err := c.uncached.Get(ctx, client.ObjectKey{Name: remoteNamespace}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("getting namespace %s, %w", remoteNamespace, err)
	case !isRemoteNamespaceOf(namespace, nm, local) || namespace.DeletionTimestamp != nil:
		return false, nil
	}
	claims, err := c.boundClaims(ctx, remoteNamespace)
	if err != nil || len(claims) == 0 {
		return false, err
	}
	named := strings.Join(claims[:min(len(claims), maxNamedClaims)], ", ")
	if more := len(claims) - maxNamedClaims; more > 0 {
		named += fmt.Sprintf(", %d more", more)
	}
	note := fmt.Sprintf("namespace %s of consumer %s is not deleted with NamespaceMap %s, because the consumer has not withdrawn it and claims have data: %s. The consumer uses it again with its next NamespaceMap; if nobody needs the data, delete the namespace",
		remoteNamespace, nm.Labels[wire.OriginIDLabel], client.ObjectKeyFromObject(nm), named)
	c.report.Warn(nm, remotedata.HeldReason, mapAction, note)
	c.report.Warn(namespace, remotedata.HeldReason, mapAction, note)
	return true, nil
}

// claimsPage is the number of claims that are read in one request. It is small, because consumers determine the size
// and number of claims.
const claimsPage = 20

// boundClaims returns the names of the claims in a namespace that are bound to a volume.
func (c *Controller) boundClaims(ctx context.Context, namespace string) (names []string, err error) {
	for next := ""; ; {
		page := &corev1.PersistentVolumeClaimList{}
		if err := c.uncached.List(ctx, page, client.InNamespace(namespace), client.Limit(claimsPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing PersistentVolumeClaims in %s, %w", namespace, err)
		}
		for i := range page.Items {
			if page.Items[i].Spec.VolumeName != "" {
				names = append(names, page.Items[i].Name)
			}
		}
		if next = page.Continue; next == "" {
			return names, nil
		}
	}
}
