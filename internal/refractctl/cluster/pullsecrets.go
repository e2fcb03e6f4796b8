// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/progress"
)

// FindPullSecrets reads image pull Secrets from the namespace of the release. It only warns of a Secret that cannot be
// used, because nodes may have their own credentials.
func (s *Side) FindPullSecrets(ctx context.Context, names sets.Set[string], report progress.Reporter) (secrets []*corev1.Secret, err error) {
	for _, name := range sets.List(names) {
		key := client.ObjectKey{Namespace: s.Installation.Namespace, Name: name}
		found := &corev1.Secret{}
		err := s.Client.Get(ctx, key, found)
		switch {
		case apierrors.IsNotFound(err):
			report.Report("%s: warning: image pull secret %s does not exist: create it and run the command again, or remove it from common.imagePullSecrets", s.ID(), key)
		case err != nil:
			return nil, fmt.Errorf("cluster %s: getting image pull secret %s, %w", s.Name, key, err)
		case found.Type != corev1.SecretTypeDockerConfigJson && found.Type != corev1.SecretTypeDockercfg:
			report.Report("%s: warning: Secret %s of common.imagePullSecrets has type %s, no image is pulled with it: recreate it with type %s", s.ID(), key, found.Type, corev1.SecretTypeDockerConfigJson)
		default:
			secrets = append(secrets, found)
		}
	}
	return secrets, nil
}

// CopyPullSecrets returns copies of image pull Secrets in another namespace, because Kubernetes only reads image pull
// Secrets from the namespace of the pod. The copies remain in this cluster, because a peer may not read Secrets in its
// tenant namespace.
func CopyPullSecrets(namespace string, originals []*corev1.Secret) []client.Object {
	copies := make([]client.Object, 0, len(originals))
	for _, original := range originals {
		copies = append(copies, &corev1.Secret{ObjectMeta: Meta(namespace, original.Name, nil), Type: original.Type, Data: original.Data})
	}
	return copies
}

// RemovePullSecrets removes the copies of image pull Secrets from a namespace.
func (r *Remover) RemovePullSecrets(ctx context.Context, namespace string) error {
	for _, kind := range []corev1.SecretType{corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg} {
		copies := &corev1.SecretList{}
		err := r.Client.List(ctx, copies, client.InNamespace(namespace), client.MatchingLabels{ManagedByLabel: ManagedBy}, client.MatchingFields{"type": string(kind)})
		if err != nil {
			return fmt.Errorf("cluster %s: listing image pull secrets, %w", r.Name, err)
		}
		for i := range copies.Items {
			if err := r.Remove(ctx, &copies.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
