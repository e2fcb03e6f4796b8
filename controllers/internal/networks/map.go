// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/internal/ipmap"
)

// MapAddress returns the local address for an address in the given cluster. If no range of the cluster contains the
// address, it is returned unchanged.
func (n *Networks) MapAddress(ctx context.Context, cluster, address string) (string, error) {
	mapped, _, err := n.find(ctx, cluster, address, func(known network) *ipmap.Table { return known.all })
	return mapped, err
}

// MapOwn returns the same address as MapAddress. However, it returns ErrForeign if the ranges of the cluster are known
// and do not contain the address.
func (n *Networks) MapOwn(ctx context.Context, cluster, address string) (string, error) {
	mapped, within, err := n.find(ctx, cluster, address, func(known network) *ipmap.Table { return known.all })
	if err == nil && !within {
		err = fmt.Errorf("mapping address %s of cluster %s: %w", address, cluster, ErrForeign)
	}
	return mapped, err
}

// MapPod returns the local address of a pod in the given cluster. It returns ErrOutside if no pod range of the cluster
// contains the address.
func (n *Networks) MapPod(ctx context.Context, cluster, address string) (string, error) {
	mapped, within, err := n.find(ctx, cluster, address, func(known network) *ipmap.Table { return known.pods })
	if err == nil && !within {
		err = fmt.Errorf("mapping address %s of cluster %s: %w", address, cluster, ErrOutside)
	}
	return mapped, err
}

func (n *Networks) find(ctx context.Context, cluster, address string, choose func(network) *ipmap.Table) (mapped string, within bool, err error) {
	known, remapped, err := n.network(ctx, cluster)
	if err != nil {
		return "", false, err
	}
	if !remapped {
		return address, true, nil
	}
	mapped, within, ok := choose(known).Find(address)
	if !ok {
		return "", false, fmt.Errorf("mapping address %q of cluster %s: it is not an IP address", address, cluster)
	}
	return mapped, within, nil
}

// network returns the network of a cluster. remapped is false if this cluster has no network module, so that addresses
// are not remapped.
func (n *Networks) network(ctx context.Context, cluster string) (known network, remapped bool, err error) {
	if remapped, err := n.awaitConfigurations(ctx); err != nil || !remapped {
		return network{}, false, err
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	known, ok := n.networks[cluster]
	if !ok {
		return network{}, false, fmt.Errorf("looking for the Configuration of cluster %s: %w: connect the networks of the two clusters", cluster, ErrUnknown)
	}
	return known, true, known.fault
}

// APIServers maps the addresses of API servers.
type APIServers struct {
	Networks *Networks
	Client   client.Reader
}

// MapAPIServer returns the local address for the address ip in the cluster origin. If Liqo does not connect the
// networks of the two clusters, it returns ip, because the clusters may share a network.
func (a APIServers) MapAPIServer(ctx context.Context, origin, ip string) (string, error) {
	mapped, err := a.Networks.MapAddress(ctx, origin, ip)
	if !errors.Is(err, ErrUnknown) {
		return mapped, err
	}
	cluster, failure := peers.Find(ctx, a.Client, origin)
	switch {
	case failure != nil:
		return "", failure
	case cluster != nil && cluster.Status.Modules.Networking.Enabled:
		return "", err
	}
	return ip, nil
}
