// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
)

// access is what it takes to reach the tenant namespace of a provider.
type access struct {
	kubeconfig []byte
	namespace  string
	cluster    string // which it is meant for
}

// access reads it from the Secret of the peering's control-plane identity, or
// else from the one that a virtual node of this provider uses.
func (c *Controller) access(ctx context.Context, local *offloading.NamespaceMap) (access, error) {
	provider := local.Labels[wire.RemoteIDLabel]
	names := []string{"kubeconfig-controlplane-" + provider}
	nodes := &offloading.VirtualNodeList{}
	if err := c.client.List(ctx, nodes, client.InNamespace(local.Namespace)); err != nil {
		return access{}, fmt.Errorf("listing VirtualNodes in %s, %w", local.Namespace, err)
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
			return c.accessFrom(secret, provider), nil
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			return access{}, fmt.Errorf("getting Secret %s/%s, %w", local.Namespace, name, err)
		}
	}
	return access{}, report.Errorf(report.Missing, "no kubeconfig for the provider %s: none of the Secrets %q in namespace %s can be read and has the key %q",
		provider, names, local.Namespace, wire.KubeconfigSecretKey)
}

func (c *Controller) accessFrom(secret *corev1.Secret, provider string) access {
	namespace := secret.Annotations[wire.RemoteTenantNamespaceAnnotation]
	if namespace == "" {
		namespace = wire.TenantNamespace(c.options.ClusterID.String())
	}
	return access{kubeconfig: secret.Data[wire.KubeconfigSecretKey], namespace: namespace, cluster: provider}
}
