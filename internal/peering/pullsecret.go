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
)

// findPullSecrets reads the image pull secrets of the virtual kubelet from the namespace of the release. An unusable
// Secret only leads to a warning, because nodes may have credentials of their own.
func (o *Options) findPullSecrets(ctx context.Context) error {
	c := o.Consumer
	templates := &offloading.VkOptionsTemplateList{}
	if err := c.Client.List(ctx, templates, client.InNamespace(c.installation.Namespace)); err != nil {
		return fmt.Errorf("cluster %s: listing VkOptionsTemplates, %w", c.Name, err)
	}
	names := sets.New[string]()
	for i := range templates.Items {
		for _, reference := range templates.Items[i].Spec.ImagePullSecrets {
			names.Insert(reference.Name)
		}
	}
	o.pullSecrets = nil
	for _, name := range sets.List(names) {
		key := client.ObjectKey{Namespace: c.installation.Namespace, Name: name}
		found := &corev1.Secret{}
		err := c.Client.Get(ctx, key, found)
		switch {
		case apierrors.IsNotFound(err):
			o.say("%s: warning: image pull secret %s does not exist: create it and run the command again, or remove it from common.imagePullSecrets", c.ID(), key)
		case err != nil:
			return fmt.Errorf("cluster %s: getting image pull secret %s, %w", c.Name, key, err)
		case found.Type != corev1.SecretTypeDockerConfigJson && found.Type != corev1.SecretTypeDockercfg:
			o.say("%s: warning: Secret %s of common.imagePullSecrets has type %s, no image is pulled with it: recreate it with type %s", c.ID(), key, found.Type, corev1.SecretTypeDockerConfigJson)
		default:
			o.pullSecrets = append(o.pullSecrets, found)
		}
	}
	return nil
}

// copiedPullSecrets returns copies of the image pull secrets for the namespace of the virtual kubelet, because
// Kubernetes reads them only there. The copies stay in this cluster: a peer may read no Secret of its tenant
// namespace.
func (o *Options) copiedPullSecrets() []client.Object {
	copies := make([]client.Object, 0, len(o.pullSecrets))
	for _, original := range o.pullSecrets {
		object := meta(wire.TenantNamespace(o.Provider.ID()), original.Name, nil)
		copies = append(copies, &corev1.Secret{ObjectMeta: object, Type: original.Type, Data: original.Data})
	}
	return copies
}

// removePullSecrets removes the copies.
func (o *Options) removePullSecrets(ctx context.Context) error {
	for _, kind := range []corev1.SecretType{corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg} {
		copies := &corev1.SecretList{}
		err := o.Consumer.Client.List(ctx, copies, client.InNamespace(wire.TenantNamespace(o.Provider.ID())), client.MatchingLabels{managedByLabel: managedBy}, client.MatchingFields{"type": string(kind)})
		if err != nil {
			return fmt.Errorf("cluster %s: listing image pull secrets, %w", o.Consumer.Name, err)
		}
		for i := range copies.Items {
			if err := o.Consumer.remove(ctx, &copies.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
