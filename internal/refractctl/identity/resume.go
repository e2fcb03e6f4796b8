// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/invitation"
)

// Resume accesses a provider whose invitation has ended. It uses the token that the consumer has renewed since the
// clusters were joined.
func Resume(ctx context.Context, consumer *cluster.Side, invited *cluster.Cluster, ended *invitation.EndedError) (*cluster.Side, error) {
	current, err := readCurrentAccess(ctx, consumer, invited.Invitation.Provider)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(invited.Config)
	if current == nil || current.BearerToken == config.BearerToken || !leadsTo(config, current) {
		return nil, ended
	}
	config.BearerToken, config.BearerTokenFile = current.BearerToken, ""
	resumed := &cluster.Cluster{Name: invited.Name, Config: config, Invitation: invited.Invitation}
	if resumed.Client, err = client.New(config, client.Options{Scheme: consumer.Client.Scheme()}); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", invited.Name, err)
	}
	if resumed.Clientset, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", invited.Name, err)
	}
	side, err := resumed.Inspect(ctx)
	if errors.As(err, new(*invitation.EndedError)) { // the consumer's access has ended, too
		return nil, fmt.Errorf("%w; if it has revoked the access of this cluster, end the peering with refractctl unpeer %s --force", ended, invited.Invitation.Provider)
	}
	return side, err
}

// leadsTo reports whether a kubeconfig is for the same API server as the kubeconfig in use. Otherwise the token could
// be sent to a server named in a file from another source.
func leadsTo(config, inUse *rest.Config) bool {
	switch {
	case config.Insecure, config.ServerName != inUse.ServerName:
		return false
	case len(config.CAData) > 0:
		return bytes.Equal(config.CAData, inUse.CAData)
	}
	return config.Host == inUse.Host
}

// readCurrentAccess returns the consumer's current access to its provider, or nil if there is none.
func readCurrentAccess(ctx context.Context, consumer *cluster.Side, provider string) (*rest.Config, error) {
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: wire.TenantNamespace(provider), Name: SecretName(provider)}
	if err := consumer.Client.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // as documented
		}
		return nil, fmt.Errorf("cluster %s: getting Secret %s, %w", consumer.Name, key, err)
	}
	config, err := connection.Parse(secret.Data[wire.KubeconfigSecretKey])
	if err != nil {
		return nil, fmt.Errorf("cluster %s: reading Secret %s, %w", consumer.Name, key, err)
	}
	return config, nil
}
