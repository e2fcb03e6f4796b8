// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"context"
	"crypto"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/remote"
)

// controlPlane is the access of this cluster's controllers to a provider.
type controlPlane struct {
	identity *auth.Identity
	key      crypto.Signer // key of this cluster
	access   remote.Access
}

// controlPlane returns the access to a provider with the Identity for its control plane, or nil if there is no Identity
// that can be used. An Identity counts only after its kubeconfig was written, so that clusters that refractctl peer has
// joined stay as they are. The Secret of the Identity is not needed.
func (a *Access) controlPlane(ctx context.Context, namespace, provider string) (*controlPlane, error) {
	identity := &auth.Identity{}
	name := client.ObjectKey{Namespace: namespace, Name: wire.ControlPlaneIdentity(provider)}
	if err := a.client.Get(ctx, name, identity); err != nil || identity.Status.KubeconfigSecretRef == nil || identity.Spec.ClusterID.String() != provider {
		return nil, client.IgnoreNotFound(err)
	}
	key, err := a.clusterKey(ctx)
	if err != nil {
		return nil, err
	}
	kubeconfig, _, err := newKubeconfig(identity, a.options.ClusterID.String(), key)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // an Event about the Identity reports it
	}
	return &controlPlane{identity: identity, key: key, access: remote.Access{
		Kubeconfig: kubeconfig, Provider: provider,
		Namespace: cmp.Or(ptr.Deref(identity.Spec.Namespace, ""), wire.TenantNamespace(a.options.ClusterID.String())),
	}}, nil
}
