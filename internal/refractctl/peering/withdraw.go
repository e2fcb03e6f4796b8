// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// Withdraw deletes the objects that a provider has for a consumer. The consumer does not have to be accessible, because
// its ID is sufficient. Withdraw fails if the consumer still uses the objects, if there are no objects, or if the
// consumer still has access afterwards through objects that other clients have created. The returned Removal is not nil
// if the removal has begun, even if there is an error.
func (o *Options) Withdraw(ctx context.Context) (*Removal, error) {
	removal, err := o.withdraw(ctx)
	return removal, progress.Ended(ctx, err)
}

func (o *Options) withdraw(ctx context.Context) (*Removal, error) {
	p, err := o.inspectProvider(ctx)
	if err != nil {
		return nil, err
	}
	access, err := p.tenant.FindAccess(ctx, nil)
	// If the user may not list bindings, only objects with known names are removed first.
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	if len(access) == 0 {
		if err := p.provider.RequirePeer(ctx, p.consumer.ID()); err != nil {
			return nil, err
		}
	}
	l := p.beginRemoval(o)
	err = l.withdraw(ctx, access)
	return l.removal(), err
}

// inspectProvider inspects only the provider. Of the consumer, only the ID is known.
func (o *Options) inspectProvider(ctx context.Context) (*pair, error) {
	provider, err := o.Provider.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	consumer, err := o.Consumer.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	return newPair(consumer, provider, o.Progress), nil
}

// withdraw removes the objects of the consumer. access lists the consumer's bindings.
func (l *leaving) withdraw(ctx context.Context, access []*metav1.PartialObjectMetadata) error {
	if err := l.requireUnused(ctx); err != nil {
		return err
	}
	finish, err := l.leaveProvider(ctx)
	if err != nil {
		return err
	}
	if err := l.end(ctx, finish); err != nil {
		return err
	}
	for _, binding := range access {
		if cluster.IsOurs(binding) { // another release has created the binding
			if err := l.atProvider.Remove(ctx, binding); err != nil {
				return err
			}
		}
	}
	if access, err = l.tenant.FindAccess(ctx, l.atProvider); err != nil {
		return err
	}
	if err := l.tenant.ReportLeft(ctx, l.atProvider, access, l.Reporter); err != nil {
		return err
	}
	if len(l.atProvider.Removed()) == 0 { // for example because the peer is only a provider
		return fmt.Errorf("cluster %s: %s has no access to this cluster, and refractctl has created nothing for it: nothing was removed", l.provider.Name, l.consumer.ID())
	}
	return nil
}
