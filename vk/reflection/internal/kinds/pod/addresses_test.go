// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"net/netip"
	"testing"

	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

// TestPodAddressesWithinTheNetwork checks that only the addresses of pods on the host network may be outside of the pod
// ranges that the network reports, and that a loopback address is never shown.
func TestPodAddressesWithinTheNetwork(t *testing.T) {
	t.Parallel()
	h := &Handler{Base: engine.Base{Env: engine.EnvOf(engine.Options{ForeignPodCIDRs: ipmap.Ranges{netip.MustParsePrefix("10.71.0.0/16")}})}}
	for _, tc := range []struct {
		address              string
		hostNetwork, omitted bool
	}{{"10.71.0.1", false, false}, {"172.16.0.1", false, true}, {"172.16.0.1", true, false}, {"127.0.0.1", true, true}} {
		status, omitted := h.withAllowedIPs(map[string]any{"podIP": tc.address}, tc.hostNetwork)
		if shown := status["podIP"] != nil; shown == tc.omitted || (len(omitted) > 0) != tc.omitted {
			t.Errorf("%+v: shown %t, omitted %v", tc, shown, omitted)
		}
	}
}
