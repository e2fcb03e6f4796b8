// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/controllers/internal/report"
)

// sharedReason is the reason of Events about a range or an address that two objects have.
const sharedReason = "GrantedTwice"

// confirmNow reads all objects again after grants were written, and confirms the new grants.
func (c *Controller) confirmNow(ctx context.Context) error {
	if len(c.unconfirmed) == 0 {
		return nil
	}
	networks, ips, err := c.readAll(ctx)
	if err != nil {
		return fmt.Errorf("making sure that nothing is granted twice, %w", err)
	}
	return c.confirm(ctx, networks, ips)
}

// confirm checks the unconfirmed grants. A grant that overlaps another object's grant is revoked, and all others are
// confirmed. If a grant cannot be revoked, it stays unconfirmed, and the next pass tries again.
func (c *Controller) confirm(ctx context.Context, networks []api.Network, ips []api.IP) error {
	left := map[types.UID]bool{}
	var failures []error
	for i := range networks {
		n := &networks[i]
		if !c.unconfirmed[n.UID] {
			continue
		}
		if other := findSharedRange(n, networks); other != nil {
			without := n.DeepCopy()
			without.Status.CIDR = ""
			if err := c.patchStatus(ctx, without, n); err != nil {
				left[n.UID], failures = true, append(failures, err)
				continue
			}
			without.DeepCopyInto(n)
			failures = append(failures, errTakenBack(n, describe("Network", other)))
		}
	}
	for i := range ips {
		ip := &ips[i]
		if !c.unconfirmed[ip.UID] {
			continue
		}
		if other := findSharedAddress(ip, ips); other != nil {
			without := ip.DeepCopy()
			without.Status.IP, without.Status.CIDR = "", ""
			if err := c.patchStatus(ctx, without, ip); err != nil {
				left[ip.UID], failures = true, append(failures, err)
				continue
			}
			without.DeepCopyInto(ip)
			failures = append(failures, errTakenBack(ip, describe("IP", other)))
		}
	}
	c.unconfirmed = left
	return errors.Join(failures...)
}

// warnOfShared writes an Event about each range or address that two objects have. This can happen if a controller
// manager ends between its write and the check, or if two allocators grant addresses. A grant that is in use is never
// revoked automatically; an administrator has to decide.
func (c *Controller) warnOfShared(networks []api.Network, ips []api.IP) {
	const note = "status has %s, as has %s: traffic reaches only one of them: delete and create again the one that is not in use"
	for i := range networks {
		n := &networks[i]
		if other := findSharedRange(n, networks); other != nil {
			c.networks.Warn(n, sharedReason, grantAction, fmt.Sprintf(note, n.Status.CIDR, describe("Network", other)))
		}
	}
	holders := map[networking.IP]*api.IP{}
	for i := range ips {
		ip := &ips[i]
		if other := holders[ip.Status.IP]; other != nil {
			c.ips.Warn(ip, sharedReason, grantAction, fmt.Sprintf(note, ip.Status.IP, describe("IP", other)))
		} else if ip.Status.IP != "" {
			holders[ip.Status.IP] = ip
		}
	}
}

// errTakenBack returns an error, so that the pass is repeated after a grant was revoked.
func errTakenBack(object client.Object, other string) error {
	return report.Errorf(report.Conflict, "%T %s: its grant was taken back, because another controller manager granted the same to %s",
		object, client.ObjectKeyFromObject(object), other)
}

// findSharedRange returns a Network whose range overlaps the range of n, or nil if there is none.
func findSharedRange(n *api.Network, networks []api.Network) *api.Network {
	r, err := netip.ParsePrefix(string(n.Status.CIDR))
	if err != nil {
		return nil
	}
	for i := range networks {
		other := &networks[i]
		taken, err := netip.ParsePrefix(string(other.Status.CIDR))
		if err == nil && other.UID != n.UID && taken.Overlaps(r) && !mayShare(n, networks, describe("Network", other)) {
			return other
		}
	}
	return nil
}

// findSharedAddress returns another IP that has the same address as ip, or nil if there is none.
func findSharedAddress(ip *api.IP, ips []api.IP) *api.IP {
	for i := range ips {
		if ips[i].UID != ip.UID && ips[i].Status.IP != "" && ips[i].Status.IP == ip.Status.IP {
			return &ips[i]
		}
	}
	return nil
}
