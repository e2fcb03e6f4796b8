// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/report"
)

// readAccess reads the kubeconfig for the provider. It is in the Secret of the peering's control-plane identity or, if
// there is none, in the Secret of one of the provider's virtual nodes.
func (c *Controller) readAccess(ctx context.Context, local *offloading.NamespaceMap) (remote.Access, error) {
	provider := local.Labels[wire.RemoteIDLabel]
	names := []string{"kubeconfig-controlplane-" + provider}
	nodes := &offloading.VirtualNodeList{}
	if err := c.client.List(ctx, nodes, client.InNamespace(local.Namespace)); err != nil {
		return remote.Access{}, fmt.Errorf("listing VirtualNodes in %s, %w", local.Namespace, err)
	}
	for i := range nodes.Items {
		if spec := &nodes.Items[i].Spec; string(spec.ClusterID) == provider && spec.KubeconfigSecretRef != nil {
			names = append(names, spec.KubeconfigSecretRef.Name)
		}
	}
	for _, name := range names {
		secret := &corev1.Secret{}
		err := c.live.Get(ctx, client.ObjectKey{Namespace: local.Namespace, Name: name}, secret)
		switch {
		case err == nil && len(secret.Data[wire.KubeconfigSecretKey]) > 0:
			return remote.AccessFrom(secret, core.ClusterID(provider), c.options.ClusterID), nil
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			return remote.Access{}, fmt.Errorf("getting Secret %s/%s, %w", local.Namespace, name, err)
		}
	}
	return remote.Access{}, report.Errorf(report.Missing, "no kubeconfig for the provider %s: none of the Secrets %q in namespace %s can be read and has the key %q",
		provider, names, local.Namespace, wire.KubeconfigSecretKey)
}
