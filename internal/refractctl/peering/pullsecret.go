// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// findPullSecrets reads the image pull Secrets of the virtual kubelet from the namespace of the release.
func (p *pair) findPullSecrets(ctx context.Context) ([]*corev1.Secret, error) {
	c := p.consumer
	templates := &offloading.VkOptionsTemplateList{}
	if err := c.Client.List(ctx, templates, client.InNamespace(c.Installation.Namespace)); err != nil {
		return nil, fmt.Errorf("cluster %s: listing VkOptionsTemplates, %w", c.Name, err)
	}
	names := sets.New[string]()
	for i := range templates.Items {
		for _, reference := range templates.Items[i].Spec.ImagePullSecrets {
			names.Insert(reference.Name)
		}
	}
	return c.FindPullSecrets(ctx, names, p.Reporter)
}

// copiedPullSecrets returns copies of the image pull Secrets in the namespace of the virtual kubelet.
func (p *pair) copiedPullSecrets(originals []*corev1.Secret) []client.Object {
	return cluster.CopyPullSecrets(wire.TenantNamespace(p.provider.ID()), originals)
}
