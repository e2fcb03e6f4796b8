// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package coverage

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/connection"
)

// answerTimeout limits the wait for a provider, which is often unreachable from the user's computer.
const answerTimeout = 5 * time.Second

// newClient returns a client for the provider with the credentials of its virtual kubelets. It returns nil if these
// credentials cannot be read or used.
func (p *provider) newClient(ctx context.Context, c client.Client) client.Client {
	for i := range p.nodes {
		if p.nodes[i].Spec.KubeconfigSecretRef == nil {
			continue
		}
		secret := &corev1.Secret{}
		if c.Get(ctx, client.ObjectKey{Namespace: p.tenant, Name: p.nodes[i].Spec.KubeconfigSecretRef.Name}, secret) != nil {
			continue
		}
		config, err := connection.Parse(secret.Data[wire.KubeconfigSecretKey])
		if err != nil {
			continue
		}
		config.Timeout = answerTimeout
		if found, err := client.New(config, client.Options{}); err == nil {
			return found
		}
	}
	return nil
}

// deniesKind reports whether this cluster lacks the permission to create objects of the kind on the provider. It
// returns false if the provider does not respond. Virtual kubelets report a missing permission in Events, too.
func (p *provider) deniesKind(ctx context.Context, k kind) bool {
	if p.client == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for _, verb := range []string{"list", "watch", "create", "patch", "delete"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: p.remote, Verb: verb, Group: k.group, Resource: k.resource}}}
		if err := p.client.Create(ctx, review); err != nil {
			return false
		}
		if !review.Status.Allowed {
			return true
		}
	}
	return false
}
