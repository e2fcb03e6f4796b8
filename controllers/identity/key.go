// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/clientcert"
)

// keyRetryInterval is the interval at which the creation of the key is retried. The tools that join clusters wait for
// the key.
const keyRetryInterval = 5 * time.Second

// ensureKey creates the key of this cluster, unless it exists. It returns when there is a key or ctx is done. The
// Secret is installed by the chart, because permission to create a Secret cannot be restricted to its name.
func (a *Access) ensureKey(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, keyRetryInterval, true, func(ctx context.Context) (bool, error) {
		if err := a.createKey(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Cannot create the key of this cluster, retrying")
			return false, nil
		}
		return true, nil
	})
}

func (a *Access) createKey(ctx context.Context) error {
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: a.options.Installation, Name: wire.ClusterKeySecret}
	if err := a.live.Get(ctx, name, secret); err != nil {
		return fmt.Errorf("getting Secret %s, which the chart installs, %w", name, err)
	}
	if len(secret.Data[wire.PrivateKeyField]) > 0 {
		return nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("generating a key, %w", err)
	}
	privatePEM, err := clientcert.EncodePrivateKey(private)
	if err != nil {
		return err
	}
	publicPEM, err := clientcert.EncodeKey(public)
	if err != nil {
		return err
	}
	// The update contains the resource version: another replica may have created a key.
	secret.Data = map[string][]byte{wire.PrivateKeyField: privatePEM, wire.PublicKeyField: publicPEM}
	if err := a.client.Update(ctx, secret, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("storing the key in Secret %s, %w", name, err)
	}
	log.FromContext(ctx).Info("Created the key of this cluster", "secret", name.String())
	return nil
}
