// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/peeringtest"
	"github.com/refract-project/refract/test/support/apistub"
)

func inspect(t *testing.T, s *peeringtest.Side) *cluster.Side {
	t.Helper()
	side, err := (&cluster.Cluster{Name: s.ID, Config: s.Config, Client: s.Client, Clientset: s.Clientset}).Inspect(t.Context())
	require.NoError(t, err)
	return side
}

func prefix(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }

// TestSettingsOfANetworkAreKept checks that the network settings of one run of refractctl also apply to the next run,
// unless flags override them.
func TestSettingsOfANetworkAreKept(t *testing.T) {
	t.Parallel()
	stub := peeringtest.New(t, "rome").Install(t, "10.1.0.0/16")
	rome, milan := inspect(t, stub), absent(t, "milan")
	writer := cluster.NewWriter(rome)
	require.NoError(t, writer.CreateTenant(t.Context(), milan))
	_, isJoined, err := Settings{}.Keep(t.Context(), rome, milan)
	require.NoError(t, err)
	assert.False(t, isJoined)
	given := Settings{Mode: plugins.ReachableNetwork, ConsumerRanges: prefix("10.1.0.0/16"), ProviderRanges: prefix("10.9.0.0/16"), OverlappingRanges: ptr.To(true)}
	assert.True(t, given.AreSet())
	assert.False(t, Settings{}.AreSet())
	network, err := Learn(t.Context(), rome, milan, given)
	require.NoError(t, err)
	require.NoError(t, network.Declare(t.Context(), writer, nil))
	kept, isJoined, err := Settings{}.Keep(t.Context(), rome, milan)
	require.NoError(t, err)
	assert.True(t, isJoined)
	assert.Equal(t, given, kept)
	kept, _, err = Settings{Mode: plugins.NoNetwork, ConsumerRanges: prefix("10.3.0.0/16"), ProviderRanges: prefix("10.4.0.0/16"), OverlappingRanges: ptr.To(false)}.Keep(t.Context(), rome, milan)
	require.NoError(t, err)
	assert.Equal(t, Settings{Mode: plugins.NoNetwork, ConsumerRanges: prefix("10.3.0.0/16"), ProviderRanges: prefix("10.4.0.0/16"), OverlappingRanges: ptr.To(false)}, kept)
	stub.OnRequest(func(apistub.Request) *apistub.Failure { return apistub.Forbidden })
	_, _, err = Settings{}.Keep(t.Context(), rome, milan)
	assert.ErrorContains(t, err, "cluster rome: getting PeerNetwork liqo-tenant-milan/milan")
}

// TestBothSidesDeclareTheNetwork checks that the PeerNetwork of each cluster describes this cluster as local.
func TestBothSidesDeclareTheNetwork(t *testing.T) {
	t.Parallel()
	here, there := peeringtest.New(t, "rome").Install(t, "10.1.0.0/16"), peeringtest.New(t, "milan").Install(t, "10.2.0.0/16")
	rome, milan := inspect(t, here), inspect(t, there)
	network, err := Learn(t.Context(), rome, milan, Settings{})
	require.NoError(t, err)
	assert.Equal(t, plugins.ReachableNetwork, network.Mode)
	for _, test := range []struct {
		side, peer    *cluster.Side
		local, remote plugins.CIDR
	}{{rome, milan, "10.1.0.0/16", "10.2.0.0/16"}, {milan, rome, "10.2.0.0/16", "10.1.0.0/16"}} {
		writer := cluster.NewWriter(test.side)
		require.NoError(t, writer.CreateTenant(t.Context(), test.peer))
		require.NoError(t, network.Declare(t.Context(), writer, nil))
		declared := &plugins.PeerNetwork{}
		require.NoError(t, test.side.Client.Get(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-" + test.peer.ID(), Name: test.peer.ID()}, declared))
		assert.Equal(t, []plugins.CIDR{test.local}, declared.Spec.Local.PodCIDRs)
		assert.Equal(t, []plugins.CIDR{test.remote}, declared.Spec.Remote.PodCIDRs)
		assert.Equal(t, test.peer.ID(), declared.Spec.ClusterID)
	}
	here.Unserve("plugins.refract.io", "peernetworks")
	fresh := inspect(t, here.As(t, here.Config))
	older := &Network{Settings: network.Settings, Consumer: fresh, Provider: milan}
	var said string
	require.NoError(t, older.Declare(t.Context(), cluster.NewWriter(fresh), func(line string) { said = line }))
	assert.Contains(t, said, "rome: the CRD PeerNetwork is missing")
	_, isJoined, err := Settings{}.Keep(t.Context(), fresh, milan)
	require.NoError(t, err)
	assert.False(t, isJoined)
}

// TestDefaultMode checks that the default mode is the mode of the consumer's installation. While the consumer is
// unknown, the mode is unknown, too.
func TestDefaultMode(t *testing.T) {
	t.Parallel()
	stub := peeringtest.New(t, "rome").Install(t, "10.1.0.0/16")
	rome := inspect(t, stub)
	network, err := Learn(t.Context(), absent(t, "turin"), rome, Settings{})
	require.NoError(t, err)
	assert.Empty(t, network.Mode)
	require.NoError(t, network.Declare(t.Context(), cluster.NewWriter(rome), nil))
	stub.Put(t, &offloading.VkOptionsTemplate{TypeMeta: metav1.TypeMeta{APIVersion: offloading.GroupVersion.String(), Kind: "VkOptionsTemplate"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "default"}, Spec: offloading.VkOptionsTemplateSpec{ExtraArgs: []string{"--disable-ip-reflection"}}})
	network, err = Learn(t.Context(), rome, absent(t, "milan"), Settings{})
	require.NoError(t, err)
	assert.Equal(t, plugins.NoNetwork, network.Mode)
	stub.OnRequest(func(r apistub.Request) *apistub.Failure {
		if r.Resource == "vkoptionstemplates" {
			return apistub.Forbidden
		}
		return nil
	})
	_, err = Learn(t.Context(), rome, absent(t, "milan"), Settings{})
	assert.ErrorContains(t, err, "cluster rome: listing VkOptionsTemplates")
}

// TestRangesOfOtherPeers checks that a provider is refused if its pod ranges overlap the pod ranges of another peer,
// unless the clusters are already joined.
func TestRangesOfOtherPeers(t *testing.T) {
	t.Parallel()
	stub := peeringtest.New(t, "rome").Install(t, "10.1.0.0/16")
	rome, milan, turin := inspect(t, stub), absent(t, "milan"), absent(t, "turin")
	writer := cluster.NewWriter(rome)
	require.NoError(t, writer.CreateTenant(t.Context(), turin))
	other := &Network{Settings: Settings{Mode: plugins.ReachableNetwork}, Consumer: rome, Provider: turin, ProviderRanges: Ranges{Pods: prefix("10.2.0.0/16")}}
	require.NoError(t, other.Declare(t.Context(), writer, nil))
	network := &Network{Settings: Settings{Mode: plugins.ReachableNetwork}, Consumer: rome, Provider: milan, ConsumerRanges: Ranges{Pods: prefix("10.1.0.0/16")}, ProviderRanges: Ranges{Pods: prefix("10.2.3.0/24")}}
	require.ErrorContains(t, network.CheckRanges(t.Context(), Tolerance{}, nil), "overlaps with 10.2.0.0/16 of its peer turin")
	var said string
	require.NoError(t, network.CheckRanges(t.Context(), Tolerance{IsJoined: true}, func(line string) { said = line }))
	assert.Contains(t, said, "rome: warning: the pod range 10.2.3.0/24 of milan overlaps with 10.2.0.0/16 of its peer turin")
	other.Mode = plugins.NoNetwork
	require.NoError(t, other.Declare(t.Context(), writer, nil))
	require.NoError(t, network.CheckRanges(t.Context(), Tolerance{}, nil))
}
