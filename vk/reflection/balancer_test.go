// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"net/netip"
	"testing"

	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// TestBalancerOutsideOfThePodNetwork checks that the address of a load balancer is shown even if it is outside of the
// provider's pod network.
func TestBalancerOutsideOfThePodNetwork(t *testing.T) {
	t.Parallel()
	e := engine.EnvOf(engine.Options{ForeignPodCIDRs: ipmap.Ranges{netip.MustParsePrefix("10.71.0.0/16")}})
	status, omitted := allowedBalancers(e, map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "192.0.2.7"}}}})
	if entries := raw.Nested(status, "loadBalancer", "ingress").([]any); len(entries) != 1 || len(omitted) > 0 {
		t.Errorf("shown %v, omitted %v", entries, omitted)
	}
}
