// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
	"github.com/refract-project/refract/internal/refractctl/tenant"
)

// Options are the clusters to join and the settings of the peering. A run does not change them.
type Options struct {
	Consumer, Provider *cluster.Cluster
	// ProviderID is the ID that the provider must have. If it is "", any ID is accepted.
	ProviderID string
	// VirtualNode is the name of the virtual node. The default is the name of the provider's only virtual node or, if
	// there is none, the ID of the provider.
	VirtualNode string
	// Credentials is the kind of the consumer's credentials on the provider. The default is the kind of the existing
	// peering, or tokens.
	Credentials identity.Kind
	// Resources are the resources that the virtual node offers and the provider enforces. Resources that are not set do
	// not change. For a new virtual node, they default to DefaultResources. With an invitation, both the default and
	// the maximum are the resources of the invitation.
	Resources corev1.ResourceList
	// TenantLimits are limits of the consumer on the provider.
	TenantLimits tenant.Limits
	// Node contains the other settings of the virtual node.
	Node NodeOptions
	// AcceptedLabels lists the labels that the provider may offer for the virtual node. The default is the list of
	// the existing virtual node, or no labels.
	AcceptedLabels negotiation.Acceptance
	// APIServerURL is the address at which the consumer's pods reach the provider's API server. The default is the
	// address of the existing peering, or the address in the kubeconfig.
	APIServerURL string
	// UncheckedURL means that this computer sends no request to APIServerURL. It is for an address that only the
	// consumer can reach.
	UncheckedURL bool
	// Network is the network between the pods of the clusters.
	Network podnetwork.Settings
	// Gateways are the settings of the gateways, if they connect the clusters.
	Gateways gateways.Settings
	// DryRun means that all checks are run, but nothing is changed.
	DryRun bool
	// DeleteData confirms to Unpeer that data on the provider may be deleted if its volume has the reclaim policy
	// Delete.
	DeleteData bool
	// Progress receives a line for each step, and for each condition that the command waits for.
	Progress progress.Reporter
}

// DefaultResources returns the resources that are requested for a new virtual node if the user has set none.
func DefaultResources() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
}

// pair describes the consumer and the provider of a run, as they were found by Inspect. It is immutable.
type pair struct {
	consumer, provider *cluster.Side
	// tenant identifies the consumer as a tenant of the provider.
	tenant tenant.Tenant
	progress.Reporter
}

func newPair(consumer, provider *cluster.Side, report progress.Reporter) *pair {
	return &pair{consumer: consumer, provider: provider, tenant: tenant.Tenant{Provider: provider, Consumer: consumer.ID()}, Reporter: report}
}

// address returns the address at which the consumer reaches the provider, as far as the user has set it.
func (p *pair) address(o *Options) *identity.Address {
	return &identity.Address{Consumer: p.consumer, Provider: p.provider, ChosenURL: o.APIServerURL, IsUnchecked: o.UncheckedURL}
}

// inspect inspects the installations in both clusters.
func (o *Options) inspect(ctx context.Context) (*pair, error) {
	consumer, err := o.Consumer.Inspect(ctx)
	provider, providerErr := o.Provider.InspectAsProvider(ctx)
	if err := errors.Join(err, providerErr); err != nil {
		return nil, err
	}
	return newPair(consumer, provider, o.Progress), nil
}
