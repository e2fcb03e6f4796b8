// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway/desired"
)

// nodeKinds returns cache options for Nodes and IPs. Virtual nodes are not cached, because they have no address, and neither are
// nodes with Windows, which have no agent. Only some fields of the other Nodes are cached.
func nodeKinds() map[client.Object]cache.ByObject {
	real, err := labels.NewRequirement(wire.TypeLabel, selection.NotEquals, []string{wire.VirtualNodeType})
	if err != nil {
		panic(err) // the requirement is constant, so this cannot fail
	}
	connected, err := labels.NewRequirement(corev1.LabelOSStable, selection.NotEquals, []string{string(corev1.Windows)})
	if err != nil {
		panic(err)
	}
	return map[client.Object]cache.ByObject{
		&corev1.Node{}: {Label: labels.NewSelector().Add(*real, *connected), Transform: shrinkNode},
		&ipam.IP{}:     {Transform: shrinkIP},
	}
}

func shrinkNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	small := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: n.Spec.PodCIDRs}}
	small.Name, small.UID, small.ResourceVersion = n.Name, n.UID, n.ResourceVersion
	small.Status.Addresses = n.Status.Addresses
	return small, nil
}

// nodes converts Nodes, and remembers the last valid addresses of each of them.
type nodes struct{ last map[string]desired.Node }

// translate returns the nodes that have addresses, sorted by address and name. If a Node or an IP cannot be used, the error
// reports this, and the node keeps its previous addresses.
func (n *nodes) translate(list []corev1.Node, ips []ipam.IP) ([]desired.Node, error) {
	var errs []error
	found := make(map[string]desired.Node, len(list))
	for i := range list {
		name := list[i].Name
		translated, err := translateNode(&list[i], ips, n.last[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s, %w", name, err))
		}
		if translated.IP.IsValid() {
			found[name] = translated
		}
	}
	n.last = found
	var all []desired.Node
	for _, translated := range found {
		all = append(all, translated)
	}
	slices.SortFunc(all, func(a, b desired.Node) int { return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(a.Name, b.Name)) })
	return all, errors.Join(errs...)
}

// listSources returns the addresses from which packets of nodes may arrive, in order: all IPv4 addresses of all nodes. A network plugin may
// send the packets of pods from another address of the node than the first one. The address that a node keeps is in translated only.
func listSources(list []corev1.Node, translated []desired.Node) (sources []netip.Addr) {
	for _, n := range translated {
		sources = append(sources, n.IP)
	}
	for i := range list {
		for _, a := range list[i].Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if err == nil && ip.Is4() && (a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP) {
				sources = append(sources, ip)
			}
		}
	}
	slices.SortFunc(sources, netip.Addr.Compare)
	return slices.Compact(sources)
}

func translateNode(node *corev1.Node, ips []ipam.IP, last desired.Node) (desired.Node, error) {
	translated := desired.Node{Name: node.Name}
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() && a.Type == corev1.NodeInternalIP {
			translated.IP = ip
			break
		}
	}
	if !translated.IP.IsValid() {
		return last, errors.New("status.addresses has no InternalIP of IPv4")
	}
	var errs []error
	for _, text := range node.Spec.PodCIDRs {
		switch r, err := netip.ParsePrefix(text); {
		case err != nil:
			errs = append(errs, fmt.Errorf("spec.podCIDRs: %w", err))
		case r.Addr().Is4():
			translated.PodRanges = append(translated.PodRanges, r)
		}
	}
	if len(errs) > 0 {
		translated.PodRanges = last.PodRanges
	}
	external, err := externalAddress(ips, translated.IP, last.External)
	translated.External = external
	return translated, errors.Join(append(errs, err)...)
}

// externalAddress returns the address of a node in the external range. It returns an invalid address if the node has
// none yet.
func externalAddress(ips []ipam.IP, node, last netip.Addr) (found netip.Addr, err error) {
	for i := range ips {
		ip := &ips[i]
		if string(ip.Spec.IP) != node.String() {
			continue
		}
		if ip.Status.IP == "" {
			return last, nil
		}
		granted, err := netip.ParseAddr(string(ip.Status.IP))
		switch {
		case err != nil || !granted.Is4():
			return last, fmt.Errorf("IP %s/%s, status.ip %q is not an IPv4 address", ip.Namespace, ip.Name, ip.Status.IP)
		case found.IsValid():
			return last, fmt.Errorf("IP %s/%s is another one for %s: delete one of them", ip.Namespace, ip.Name, node)
		}
		found = granted
	}
	return found, nil
}
