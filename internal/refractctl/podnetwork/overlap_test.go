// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// absent returns a cluster that cannot be accessed.
func absent(t *testing.T, id string) *cluster.Side {
	t.Helper()
	c, err := cluster.Absent(id)
	require.NoError(t, err)
	s, err := c.Inspect(t.Context())
	require.NoError(t, err)
	return s
}

func TestUnknownRangesAreWorthAWarning(t *testing.T) {
	rome, milan := absent(t, "rome"), absent(t, "milan")
	ranges := func(text string) []netip.Prefix {
		if text == "" {
			return nil
		}
		return []netip.Prefix{netip.MustParsePrefix(text)}
	}
	for _, test := range []struct {
		here, there string
		network     plugins.NetworkMode
		overlapping bool
		warnings    []string
	}{
		{"10.1.0.0/16", "10.2.0.0/16", plugins.ReachableNetwork, false, nil},
		{"", "10.2.0.0/16", plugins.ReachableNetwork, false, []string{"rome --pod-cidrs"}},
		{"10.1.0.0/16", "", plugins.ReachableNetwork, false, []string{"milan --remote-pod-cidrs"}},
		{"", "", plugins.ReachableNetwork, false, []string{"rome --pod-cidrs", "milan --remote-pod-cidrs"}},
		{"", "", plugins.NoNetwork, false, nil},
		{"", "", plugins.ReachableNetwork, true, nil},
	} {
		var warnings []string
		network := &Network{Settings: Settings{Mode: test.network, OverlappingRanges: &test.overlapping}, Consumer: rome, Provider: milan,
			ConsumerRanges: Ranges{Pods: ranges(test.here)}, ProviderRanges: Ranges{Pods: ranges(test.there)}}
		assert.NoError(t, network.CheckRanges(t.Context(), Tolerance{}, func(line string) {
			id, warning, _ := strings.Cut(line, ": warning: the pod ranges are unknown")
			warnings = append(warnings, id+" "+warning[strings.LastIndex(warning, " ")+1:])
		}))
		assert.Equal(t, test.warnings, warnings, "%v", test)
	}
}

func TestPodsMustNotHaveAddressesOfServices(t *testing.T) {
	rome, milan := absent(t, "rome"), absent(t, "milan")
	for _, test := range []struct{ pods, services, remotePods, remoteServices, want string }{
		{"10.1.0.0/16", "10.96.0.0/12", "10.2.0.0/16", "10.96.0.0/12", ""},
		{"10.1.0.0/16", "10.96.0.0/12", "10.100.0.0/16", "10.3.0.0/16", "the pod range 10.100.0.0/16 of milan overlaps with the Service range 10.96.0.0/12 of rome"},
		{"10.1.0.0/16", "10.3.0.0/16", "10.2.0.0/16", "10.1.0.1/32", "the pod range 10.1.0.0/16 of rome overlaps with the Service range 10.1.0.1/32 of milan"},
	} {
		one := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
		network := &Network{Consumer: rome, Provider: milan, ConsumerRanges: Ranges{one(test.pods), one(test.services)}, ProviderRanges: Ranges{one(test.remotePods), one(test.remoteServices)}}
		err := network.CheckRanges(t.Context(), Tolerance{}, nil)
		if test.want == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, test.want)
		assert.True(t, strings.Contains(err.Error(), "--network=none"), "the remedy: %v", err)
	}
}

// TestOverlapOfJoinedClusters checks that joined clusters stay joined even if a later version checks more.
func TestOverlapOfJoinedClusters(t *testing.T) {
	rome, milan := absent(t, "rome"), absent(t, "milan")
	ranges := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	for name, test := range map[string]struct{ consumer, provider Ranges }{
		"pods":     {Ranges{Pods: ranges}, Ranges{Pods: ranges}},
		"Services": {Ranges{Pods: ranges}, Ranges{Services: ranges}},
		"swapped":  {Ranges{Services: ranges}, Ranges{Pods: ranges}},
	} {
		var said []string
		report := func(line string) { said = append(said, line) }
		network := &Network{Consumer: rome, Provider: milan, ConsumerRanges: test.consumer, ProviderRanges: test.provider}
		require.NoError(t, network.CheckRanges(t.Context(), Tolerance{IsJoined: true, IsUnchanged: true}, report), name)
		assert.Contains(t, strings.Join(said, "\n"), "overlap", name)
		assert.Error(t, network.CheckRanges(t.Context(), Tolerance{IsJoined: true}, report), name)
	}
}
