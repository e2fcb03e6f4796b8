// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// findPullSecrets reads the image pull Secrets of the virtual kubelet from the namespace of the release. It only warns
// of a Secret that cannot be used, because nodes may have their own credentials.
func (p *pair) findPullSecrets(ctx context.Context) (secrets []*corev1.Secret, err error) {
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
	for _, name := range sets.List(names) {
		key := client.ObjectKey{Namespace: c.Installation.Namespace, Name: name}
		found := &corev1.Secret{}
		err := c.Client.Get(ctx, key, found)
		switch {
		case apierrors.IsNotFound(err):
			p.Report("%s: warning: image pull secret %s does not exist: create it and run the command again, or remove it from common.imagePullSecrets", c.ID(), key)
		case err != nil:
			return nil, fmt.Errorf("cluster %s: getting image pull secret %s, %w", c.Name, key, err)
		case found.Type != corev1.SecretTypeDockerConfigJson && found.Type != corev1.SecretTypeDockercfg:
			p.Report("%s: warning: Secret %s of common.imagePullSecrets has type %s, no image is pulled with it: recreate it with type %s", c.ID(), key, found.Type, corev1.SecretTypeDockerConfigJson)
		default:
			secrets = append(secrets, found)
		}
	}
	return secrets, nil
}

// copiedPullSecrets returns copies of the image pull Secrets in the namespace of the virtual kubelet, because
// Kubernetes only reads image pull Secrets from the namespace of the pod. The copies remain in this cluster, because a
// peer may not read Secrets in its tenant namespace.
func (p *pair) copiedPullSecrets(originals []*corev1.Secret) []client.Object {
	copies := make([]client.Object, 0, len(originals))
	for _, original := range originals {
		object := cluster.Meta(wire.TenantNamespace(p.provider.ID()), original.Name, nil)
		copies = append(copies, &corev1.Secret{ObjectMeta: object, Type: original.Type, Data: original.Data})
	}
	return copies
}

// removePullSecrets removes the copies of the image pull secrets.
func (l *leaving) removePullSecrets(ctx context.Context) error {
	for _, kind := range []corev1.SecretType{corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg} {
		copies := &corev1.SecretList{}
		err := l.consumer.Client.List(ctx, copies, client.InNamespace(wire.TenantNamespace(l.provider.ID())), client.MatchingLabels{cluster.ManagedByLabel: cluster.ManagedBy}, client.MatchingFields{"type": string(kind)})
		if err != nil {
			return fmt.Errorf("cluster %s: listing image pull secrets, %w", l.consumer.Name, err)
		}
		for i := range copies.Items {
			if err := l.atConsumer.Remove(ctx, &copies.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
