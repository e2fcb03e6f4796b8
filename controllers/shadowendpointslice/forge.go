// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/networks"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// errMalformed is returned for a ShadowEndpointSlice that cannot be used until its content changes.
var errMalformed = errors.New("spec.template must be an object with addressType and the lists endpoints and ports")

// forgeSlice returns the EndpointSlice of shadow. Its content is taken from the template without decoding it to a Go
// type, which could lose fields. The returned problems are the reasons why endpoints are left out or not ready.
func (c *Controller) forgeSlice(ctx context.Context, shadow *unstructured.Unstructured, origin string, from state, allowed *allowance) (*unstructured.Unstructured, []problem, error) {
	template, ok, err := unstructured.NestedFieldNoCopy(shadow.Object, "spec", "template")
	content, isMap := template.(map[string]any)
	if !ok || err != nil || !isMap {
		return nil, nil, errMalformed
	}
	var problems []problem
	if !from.known {
		problems = append(problems, problem{missingForeignClusterReason, fmt.Sprintf(
			"there is no ForeignCluster with the id %s, so it is unknown whether it can be reached: its endpoints are marked not ready", origin)})
	}
	directs, err := directConnections(shadow)
	if err != nil {
		problems = append(problems, problem{directConnectionsReason, err.Error()})
	}
	conversion := conversion{
		origin: origin, from: from, directs: directs, options: &c.options, allowed: allowed,
		ready: from.reachable && len(problems) == 0,
		hosts: content["addressType"] == string(discoveryv1.AddressTypeFQDN),
	}
	endpoints, err := conversion.convertEndpoints(ctx, content["endpoints"])
	if err != nil {
		return nil, nil, err
	}

	slice := newSlice()
	for field, value := range content {
		slice.Object[field] = value
	}
	slice.Object["endpoints"] = endpoints
	slice.Object["ports"] = withDefaults(content["ports"])
	setMetadata(slice, shadow)
	return slice, append(problems, conversion.problems...), nil
}

func newSlice() *unstructured.Unstructured {
	slice := &unstructured.Unstructured{Object: map[string]any{}}
	slice.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	return slice
}

// setMetadata sets the metadata of slice. It also restores the kind if the template contains another one.
func setMetadata(slice, shadow *unstructured.Unstructured) {
	delete(slice.Object, "metadata")
	slice.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	slice.SetNamespace(shadow.GetNamespace())
	slice.SetName(shadow.GetName())
	labels := shadow.GetLabels() // GetLabels returns a copy
	labels[wire.ManagedByLabel] = wire.ManagedByShadowEndpointSlice
	slice.SetLabels(labels)
	annotations := shadow.GetAnnotations() // GetAnnotations returns a copy
	delete(annotations, wire.DirectConnectionsDataAnnotation)
	delete(annotations, wire.AdmittedAnnotation)
	slice.SetAnnotations(annotations)
	slice.SetOwnerReferences(kind.Owner(shadow))
}

// directConnections maps each address that this cluster reaches directly to the ID of the third cluster that it
// belongs to.
func directConnections(shadow *unstructured.Unstructured) (map[string]string, error) {
	text, ok := shadow.GetAnnotations()[wire.DirectConnectionsDataAnnotation]
	if !ok {
		return nil, nil
	}
	var data wire.DirectConnections
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		return nil, fmt.Errorf("annotation %s cannot be read (%w), so the endpoints are marked not ready: it must be JSON like {\"clusterAddresses\":{\"cluster-id\":[\"10.0.0.1\"]}}",
			wire.DirectConnectionsDataAnnotation, err)
	}
	return data.ByAddress(), nil
}

// conversion converts the endpoints of one slice to endpoints that this cluster can use.
type conversion struct {
	origin   string
	from     state
	directs  map[string]string
	options  *Options
	allowed  *allowance
	ready    bool
	hosts    bool      // the addresses are host names
	problems []problem // problems of the endpoints that have been converted so far
}

// convertEndpoints returns a converted copy of list. Malformed items are kept, so that the API server rejects them and
// reports their path.
func (v *conversion) convertEndpoints(ctx context.Context, list any) ([]any, error) {
	items, ok := list.([]any)
	if !ok && list != nil {
		return nil, fmt.Errorf("endpoints is not a list, %w", errMalformed)
	}
	converted := make([]any, 0, len(items))
	for i, item := range items {
		endpoint, ok := item.(map[string]any)
		if !ok {
			converted = append(converted, item)
			continue
		}
		if v.options.DenyDirectConnections && v.isDirect(endpoint) {
			continue
		}
		endpoint, err := v.convertEndpoint(ctx, endpoint)
		switch {
		case errors.Is(err, errNotConnected):
			v.problems = append(v.problems, problem{notConnectedReason, fmt.Sprintf("ignored endpoint %d: %v", i, err)})
		case errors.Is(err, errNotTheirs):
			v.problems = append(v.problems, problem{forbiddenAddressReason, fmt.Sprintf("ignored endpoint %d: %v", i, err)})
		case err != nil:
			return nil, fmt.Errorf("mapping endpoint %d, %w", i, err)
		default:
			converted = append(converted, endpoint)
		}
	}
	return converted, nil
}

func (v *conversion) isDirect(endpoint map[string]any) bool {
	addresses, _ := endpoint["addresses"].([]any)
	for _, item := range addresses {
		if address, ok := item.(string); ok && v.directs[address] != "" {
			return true
		}
	}
	return false
}

// convertEndpoint returns a copy of the endpoint with new conditions and addresses. All other fields are shared with
// the original.
func (v *conversion) convertEndpoint(ctx context.Context, endpoint map[string]any) (map[string]any, error) {
	endpoint = maps.Clone(endpoint)
	conditions, _ := endpoint["conditions"].(map[string]any)
	conditions = maps.Clone(conditions)
	if conditions == nil {
		conditions = map[string]any{}
	}
	if ready, set := conditions["ready"].(bool); !set || ready {
		conditions["ready"] = v.ready
	}
	endpoint["conditions"] = conditions

	addresses, ok := endpoint["addresses"].([]any)
	if !ok {
		// The invalid item is kept, so that the API server rejects the slice.
		return endpoint, nil
	}
	if v.hosts {
		return endpoint, v.checkHosts()
	}
	mapped := make([]any, len(addresses))
	for i, item := range addresses {
		address, err := v.convertAddress(ctx, item)
		if err == nil {
			err = v.checkAddress(address)
		}
		if err != nil {
			return nil, err
		}
		mapped[i] = address
	}
	endpoint["addresses"] = mapped
	return endpoint, nil
}

// errNotConnected is returned for an endpoint in a third cluster without a direct connection to this cluster. The other
// endpoints of the slice are not affected.
var errNotConnected = errors.New("there is no direct connection to it")

// errNotTheirs is returned for an endpoint whose address cannot belong to the consumer. Such an endpoint would let a
// consumer direct traffic of this cluster's pods to arbitrary addresses, similar to CVE-2021-25740.
var errNotTheirs = errors.New("its address does not belong to the consumer")

// checkHosts refuses host names, unless the provider allows them. Ranges cannot restrict host names, and each resolver
// may return different addresses for them.
func (v *conversion) checkHosts() error {
	if v.from.noNetwork {
		return errNoNetwork
	}
	if v.allowed.hosts {
		return nil
	}
	return fmt.Errorf("%w: it is a host name (addressType FQDN); the administrator of this cluster can allow them (tenants.%s, or refractctl peer --tenant-limit %s=true)",
		errNotTheirs, tenantlimits.FQDNEndpoints.Value(), tenantlimits.FQDNEndpoints.Name)
}

// errNoNetwork is returned for every endpoint of a consumer if no network connects its pods with this cluster.
var errNoNetwork = fmt.Errorf("%w: no network connects the pods of the clusters (refractctl peer --network=none)", errNotTheirs)

// checkAddress refuses addresses of this cluster, and addresses that cannot belong to another cluster. It also refuses
// addresses that are not in canonical form, because other programs may interpret 010.96.0.1 as a different address.
func (v *conversion) checkAddress(item any) error {
	text, ok := item.(string)
	if !ok {
		// The invalid item is kept, so that the API server rejects the slice.
		return nil
	}
	if _, err := netip.ParseAddr(text); err != nil {
		return fmt.Errorf("%w: %.64q is not an IP address", errNotTheirs, text)
	}
	switch {
	case v.from.noNetwork:
		return errNoNetwork
	case ipmap.Reserved(text):
		return fmt.Errorf("%w: %s is a reserved address", errNotTheirs, text)
	case v.allowed.own.Contain(text):
		return fmt.Errorf("%w: %s is in a range of this cluster", errNotTheirs, text)
	}
	return nil
}

// checkRange checks that the address, as the consumer wrote it, is in the ranges of its owner. The owner is the
// consumer or the third cluster of a direct connection. If the provider has set ranges for the consumer, the third
// cluster needs ranges, too. Otherwise, the consumer could bypass its ranges with direct connections.
func (v *conversion) checkRange(owner, address string) error {
	if !v.allowed.restricted {
		return nil
	}
	ranges, err := v.allowed.rangesOf(owner)
	if err != nil {
		return err
	}
	if ranges.Contain(address) {
		return nil
	}
	return fmt.Errorf("%w: %.64q is outside the CIDRs that this cluster has set for cluster %s; the administrator of this cluster can add it (consumers[].cidrs, or refractctl peer --tenant-limit %s=…)",
		errNotTheirs, address, owner, tenantlimits.EndpointCIDRs.Name)
}

func (v *conversion) convertAddress(ctx context.Context, item any) (any, error) {
	address, ok := item.(string)
	if !ok || v.options.AddressMapper == nil {
		return item, nil
	}
	if third := v.directs[address]; third != "" {
		if err := v.checkRange(third, address); err != nil {
			return nil, err
		}
		mapped, err := v.options.AddressMapper.MapPod(ctx, third, address)
		if errors.Is(err, networks.ErrUnknown) || errors.Is(err, networks.ErrOutside) {
			err = fmt.Errorf("%w: %w", errNotConnected, err)
		}
		return mapped, err
	}
	if err := v.checkRange(v.origin, address); err != nil {
		return nil, err
	}
	switch {
	case !v.from.networking:
		return item, nil
	case v.allowed.restricted:
		return v.options.AddressMapper.MapAddress(ctx, v.origin, address)
	}
	mapped, err := v.options.AddressMapper.MapOwn(ctx, v.origin, address)
	if errors.Is(err, networks.ErrForeign) {
		err = fmt.Errorf("%w: %w; if it does belong to the consumer, the administrator of this cluster can set its ranges (consumers[].cidrs)", errNotTheirs, err)
	}
	return mapped, err
}

// withDefaults sets the API server's defaults in a list, so that the list is equal to the list that is read back.
func withDefaults(list any) any {
	ports, ok := list.([]any)
	if !ok {
		return list
	}
	filled := make([]any, len(ports))
	for i, item := range ports {
		port, ok := item.(map[string]any)
		if !ok {
			filled[i] = item
			continue
		}
		port = maps.Clone(port)
		setDefault(port, "name", "")
		setDefault(port, "protocol", "TCP")
		filled[i] = port
	}
	return filled
}

func setDefault(port map[string]any, field, value string) {
	if port[field] == nil {
		port[field] = value
	}
}
