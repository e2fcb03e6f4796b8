// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
)

// strictReversePathFilter is the value of net.ipv4.conf.all.rp_filter with which the kernel drops packets whose way back is another link.
const strictReversePathFilter = "1"

// readReversePathFilter returns net.ipv4.conf.all.rp_filter of this network namespace, or "" if it cannot be read. A pod has the value that
// its host had when the pod was created.
func readReversePathFilter() string {
	value, err := os.ReadFile("/proc/sys/net/ipv4/conf/all/rp_filter")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(value))
}

// checkReversePathFilter returns an error if the kernel drops packets of the peer: a strict filter does so if the source is an address of
// this pod, which a pod of the peer can have if the ranges of its cluster contain it. All other packets of the peer have their way back in
// the table of their link.
func checkReversePathFilter(filter string, pod netip.Addr, configuration *networking.Configuration) error {
	if filter != strictReversePathFilter || configuration == nil {
		return nil
	}
	for _, text := range configuration.Spec.Remote.CIDR.Pod {
		if r, err := netip.ParsePrefix(string(text)); err == nil && r.Contains(pod) {
			const text = "net.ipv4.conf.all.rp_filter is %s in the pod of the gateway: " +
				"the kernel drops the packets of the peer's pod with the address %s, which is also the one of this pod. " +
				"Set it to 0 or 2 on the hosts, in /etc/sysctl.d, and then recreate the pods of the gateway"
			return fmt.Errorf(text, filter, pod)
		}
	}
	return nil
}
