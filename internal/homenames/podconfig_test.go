// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestUsesClusterDNS(t *testing.T) {
	for _, c := range []struct {
		policy      string
		hostNetwork bool
		uses        bool
	}{
		{"", false, true}, {"ClusterFirst", false, true}, {"ClusterFirst", true, false}, {"", true, false},
		{"ClusterFirstWithHostNet", true, true}, {"ClusterFirstWithHostNet", false, true}, {"Default", false, false}, {"None", false, false},
	} {
		spec := map[string]any{"hostNetwork": c.hostNetwork}
		if c.policy != "" {
			spec["dnsPolicy"] = c.policy
		}
		assert.Equal(t, c.uses, UsesClusterDNS(spec), "%+v", c)
	}
}

func TestDNSConfig(t *testing.T) {
	ndots := func(value string) any { return map[string]any{"name": "ndots", "value": value} }
	assert.Equal(t, map[string]any{
		"nameservers": []any{"10.96.0.20"},
		"searches":    []any{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"},
		"options":     []any{ndots("5")},
	}, DNSConfig("10.96.0.20", "shop", "cluster.local", nil))
	own := map[string]any{
		"nameservers": []any{"10.0.0.53", "10.96.0.20", "10.0.0.54", "10.0.0.55"},
		"searches":    []any{"example.com", "cluster.local"},
		"options":     []any{map[string]any{"name": "edns0"}, ndots("2")},
	}
	assert.Equal(t, map[string]any{
		"nameservers": []any{"10.96.0.20", "10.0.0.53", "10.0.0.54"},
		"searches":    []any{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"},
		"options":     own["options"],
	}, DNSConfig("10.96.0.20", "shop", "cluster.local", own))
}

// TestDNSConfigStaysWithinLimits checks that a pod whose own configuration is as large as the API server allows is
// still accepted.
func TestDNSConfigStaysWithinLimits(t *testing.T) {
	var many, long []any
	for i := range maxSearches {
		many = append(many, fmt.Sprintf("d%d.example.com", i))
		long = append(long, fmt.Sprintf("%d.%s.example.com", i, strings.Repeat("x", 60)))
	}
	for _, searches := range [][]any{many, long} {
		got := textsOf(DNSConfig("10.96.0.20", "shop", "cluster.local", map[string]any{"searches": searches})["searches"])
		assert.LessOrEqual(t, len(got), maxSearches)
		assert.LessOrEqual(t, len(strings.Join(got, " ")), maxSearchBytes)
		assert.Equal(t, "shop.svc.cluster.local", got[0])
		assert.Greater(t, len(got), 20)
	}
}
