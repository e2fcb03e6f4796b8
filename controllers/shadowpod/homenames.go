// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/homenames"
)

// useHomeNames returns a copy of spec whose pod queries the resolver of its consumer (see package homenames), with the
// search domains that it has in the consumer's cluster. It returns spec unchanged if the pod does not use the DNS of a
// cluster, or its consumer has no resolver. The DNS policy of a pod is immutable, so a pod is not created before the
// resolver has an address.
//
// The consumer is the owner of the namespace, and not the cluster that the ShadowPod names, which the consumer writes.
func (c *Controller) useHomeNames(ctx context.Context, namespace string, spec map[string]any) (map[string]any, error) {
	if len(c.options.HomeDomains) == 0 || !homenames.UsesClusterDNS(spec) {
		return spec, nil
	}
	object := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: namespace}, object); err != nil {
		return nil, fmt.Errorf("getting Namespace %s, %w", namespace, err)
	}
	home := object.Annotations[wire.OriginalNameAnnotation]
	domain, resolved := c.options.HomeDomains[object.Labels[wire.RemoteClusterIDLabel]]
	if !resolved || home == "" {
		return spec, nil
	}
	tenant, _, _ := strings.Cut(object.Annotations[wire.ManagedByNamespaceMapAnnotation], "/")
	address, err := c.resolverAddress(ctx, tenant)
	if err != nil {
		return nil, err
	}
	changed := maps.Clone(spec)
	changed["dnsPolicy"] = string(corev1.DNSNone)
	own, _ := spec["dnsConfig"].(map[string]any)
	changed["dnsConfig"] = homenames.DNSConfig(address, home, domain, own)
	return changed, nil
}

// resolverAddress returns the address of the resolver in a tenant namespace.
func (c *Controller) resolverAddress(ctx context.Context, tenant string) (string, error) {
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: tenant, Name: wire.HomeNamesService}
	if err := c.uncached.Get(ctx, key, service); err != nil {
		return "", fmt.Errorf("getting Service %s, by which the pod resolves the names of its own cluster, %w: list the consumer in the value homeNames.consumers of the chart, or remove it from --home-domain-of", key, err)
	}
	if _, err := netip.ParseAddr(service.Spec.ClusterIP); err != nil {
		return "", fmt.Errorf("spec.clusterIP of Service %s is %q, which is not an address: delete the Service, and upgrade the release of the chart", key, service.Spec.ClusterIP)
	}
	return service.Spec.ClusterIP, nil
}
