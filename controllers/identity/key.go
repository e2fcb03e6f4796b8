// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/clientcert"
)

// keyRetryInterval is the interval at which the creation of the key is retried. The tools that join clusters wait for
// the key.
const keyRetryInterval = 5 * time.Second

// ensureKey creates the key of this cluster, unless it exists. It returns when there is a key or ctx is done. The
// Secret is installed by the chart, because permission to create a Secret cannot be restricted to its name.
func (a *Access) ensureKey(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, keyRetryInterval, true, func(ctx context.Context) (bool, error) {
		if _, err := a.keySecret(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Cannot create the key of this cluster, retrying")
			return false, nil
		}
		return true, nil
	})
}

// clusterKey returns the key of this cluster. If somebody has emptied its Secret, it is a new key.
func (a *Access) clusterKey(ctx context.Context) (crypto.Signer, error) {
	secret, err := a.keySecret(ctx)
	if err != nil {
		return nil, err
	}
	key, err := clientcert.ParsePrivateKey(secret.Data[wire.PrivateKeyField])
	if err != nil {
		return nil, report.Errorf(report.Invalid, "%s in Secret %s/%s is not the key of this cluster: empty the Secret, and peer the clusters again: %w", wire.PrivateKeyField, secret.Namespace, secret.Name, err)
	}
	return key, nil
}

// keySecret returns the Secret with the key of this cluster. It creates the key, unless there is one.
func (a *Access) keySecret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: a.options.Installation, Name: wire.ClusterKeySecret}
	if err := a.live.Get(ctx, name, secret); err != nil {
		return nil, fmt.Errorf("getting Secret %s, which the chart installs, %w", name, err)
	}
	if len(secret.Data[wire.PrivateKeyField]) > 0 {
		return secret, nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key, %w", err)
	}
	privatePEM, err := clientcert.EncodePrivateKey(private)
	if err != nil {
		return nil, err
	}
	publicPEM, err := clientcert.EncodeKey(public)
	if err != nil {
		return nil, err
	}
	// The update contains the resource version: another replica may have created a key.
	secret.Data = map[string][]byte{wire.PrivateKeyField: privatePEM, wire.PublicKeyField: publicPEM}
	if err := a.client.Update(ctx, secret, client.FieldOwner(fieldManager)); err != nil {
		return nil, fmt.Errorf("storing the key in Secret %s, %w", name, err)
	}
	log.FromContext(ctx).Info("Created a key of this cluster: providers that know another one refuse it, until this cluster joins them again", "secret", name.String())
	select {
	case a.keyCreated <- event.GenericEvent{Object: secret}:
	default: // an earlier event is still waiting
	}
	return secret, nil
}
