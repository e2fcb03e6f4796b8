// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipam"
)

// network returns a Network. text is "NAME REQUESTED [GRANTED]". labels contains words for labels, such as notRemapped,
// shared or external-cidr. Networks with a larger age number are younger.
func network(age int, text string, labels ...string) api.Network {
	words := strings.Fields(text)
	n := api.Network{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "default",
			Name:              words[0],
			UID:               types.UID(words[0]),
			Labels:            map[string]string{},
			CreationTimestamp: metav1.Unix(int64(age), 0),
		},
		Spec: api.NetworkSpec{CIDR: networking.CIDR(words[1])},
	}
	if len(words) > 2 {
		n.Status.CIDR = networking.CIDR(words[2])
	}
	for _, label := range labels {
		switch label {
		case "notRemapped":
			n.Labels[wire.NetworkNotRemappedLabel] = "true"
		case "ofPeer":
			n.Labels[wire.CIDRTypeLabel] = "pod"
		case "shared":
			n.Labels[wire.NetworkSharedLabel] = "true"
		default:
			n.Labels[wire.NetworkTypeLabel] = label
		}
	}
	return n
}

func TestPlanNetworks(t *testing.T) {
	own := []ipam.Use{{Range: netip.MustParsePrefix("10.96.0.0/12"), Holder: "the Services"}}
	for name, c := range map[string]struct {
		networks []api.Network
		want     string
		refused  string
	}{
		"a free wish": {[]api.Network{network(1, "a 10.1.0.0/16")}, "a=10.1.0.0/16", ""},
		"a wish that is taken": {
			[]api.Network{network(1, "a 10.1.0.0/16 10.1.0.0/16"), network(2, "b 10.1.0.0/16")},
			"a=10.1.0.0/16 b=10.0.0.0/16", "",
		},
		"an adopted grant stays": {[]api.Network{network(1, "a 10.1.0.0/16 10.96.0.0/16")}, "a=10.96.0.0/16", ""},
		"a wish in our Services": {[]api.Network{network(1, "a 10.100.0.0/16")}, "a=10.112.0.0/16", ""},
		"the older one goes first": {
			[]api.Network{network(2, "b 10.1.0.0/16"), network(1, "a 10.1.0.0/16")},
			"b=10.0.0.0/16 a=10.1.0.0/16", "",
		},
		"our own range goes first": {
			[]api.Network{network(1, "a 10.70.0.0/16"), network(2, "x 10.70.0.0/16", "external-cidr")},
			"a=10.71.0.0/16 x=10.70.0.0/16", "",
		},
		"our pods stay where they are": {
			[]api.Network{network(1, "a 10.244.0.0/16"), network(2, "p 10.244.0.0/16", "pod-cidr", "notRemapped")},
			"a=10.112.0.0/16 p=10.244.0.0/16", "",
		},
		"our Services declare theirs": {[]api.Network{network(1, "s 10.96.0.0/12", "service-cidr", "notRemapped")}, "s=10.96.0.0/12", ""},
		"reserved outside the pools":  {[]api.Network{network(1, "r 100.64.0.0/10", "reserved", "notRemapped")}, "r=100.64.0.0/10", ""},
		"not remapped, but taken": {
			[]api.Network{network(1, "a 10.1.0.0/16 10.1.0.0/16"), network(2, "p 10.1.0.0/20", "notRemapped")},
			"a=10.1.0.0/16", "p RangeTaken 10.1.0.0/16 of Network default/a",
		},
		"two share a range": {
			[]api.Network{
				network(1, "p 10.1.0.0/16 10.1.0.0/16", "notRemapped", "shared"), network(2, "q 10.1.0.0/20", "notRemapped", "shared"),
			},
			"p=10.1.0.0/16 q=10.1.0.0/20", "",
		},
		"one of two would share": {
			[]api.Network{network(1, "p 10.1.0.0/16 10.1.0.0/16", "notRemapped"), network(2, "q 10.1.0.0/20", "notRemapped", "shared")},
			"p=10.1.0.0/16", "q RangeTaken default/p",
		},
		"the pools are exhausted": {
			[]api.Network{network(1, "a 10.0.0.0/8 10.0.0.0/8"), network(2, "b 10.1.0.0/12"), network(3, "c 10.1.0.0/12")},
			"a=10.0.0.0/8 b=172.16.0.0/12", "c PoolExhausted 10.0.0.0/8 by Network default/a",
		},
		"no IPv4": {[]api.Network{network(1, "a fd00::/64")}, "", "a Invalid fd00::/64"},
		"one that is deleted has still": {
			[]api.Network{deleted(network(1, "a 10.1.0.0/16 10.1.0.0/16")), network(2, "b 10.1.0.0/16")},
			"a=10.1.0.0/16 b=10.0.0.0/16", "",
		},
		"one that is deleted gets none": {[]api.Network{deleted(network(1, "a 10.1.0.0/16"))}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			granted, refused := planNetworks(c.networks, own, nil)
			var got []string
			for i := range c.networks {
				if cidr := c.networks[i].Status.CIDR; cidr != "" {
					got = append(got, c.networks[i].Name+"="+string(cidr))
				}
			}
			assert.Equal(t, c.want, strings.Join(got, " "))
			for _, i := range granted {
				assert.NotContains(t, refused, i)
			}
			said := ""
			for i, why := range refused {
				said += fmt.Sprint(c.networks[i].Name, " ", why.reason, " ", why.message)
			}
			if c.refused == "" {
				assert.Empty(t, said)
			}
			for _, part := range strings.Fields(c.refused) {
				assert.Contains(t, said, part)
			}
		})
	}
}

func deleted(n api.Network) api.Network {
	n.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
	return n
}

// TestNetworksAreGrantedAsByLiqo checks that the ranges for Networks are the same as the ranges that Liqo's allocator
// would grant.
func TestNetworksAreGrantedAsByLiqo(t *testing.T) {
	text, err := os.ReadFile("../../internal/ipam/testdata/liqo.json")
	require.NoError(t, err)
	var vectors []struct {
		InUse []string
		Wish  string
		Grant string
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	for i, v := range vectors {
		var networks []api.Network
		for n, used := range v.InUse {
			networks = append(networks, network(n, fmt.Sprintf("n%d %s %s", n, used, used)))
		}
		networks = append(networks, network(1000, "wish "+v.Wish))
		planNetworks(networks, nil, nil)
		assert.Equal(t, v.Grant, string(networks[len(networks)-1].Status.CIDR), "decision %d", i)
	}
}

func TestPlanIPs(t *testing.T) {
	external := network(1, "external 10.70.0.0/30 10.70.0.0/30", "external-cidr")
	external.Spec.PreAllocated = 1
	small := network(2, "small 10.80.0.0/31 10.80.0.0/31")
	waiting := network(3, "waiting 10.90.0.0/16")
	ip := func(age int, name, granted, of string) api.IP {
		found := api.IP{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:         "shop",
				Name:              name,
				UID:               types.UID(name),
				CreationTimestamp: metav1.Unix(int64(age), 0),
			},
		}
		found.Status.IP = networking.IP(granted)
		if of != "" {
			found.Spec.NetworkRef = &corev1.ObjectReference{Namespace: "default", Name: of}
		}
		return found
	}
	ips := []api.IP{
		ip(3, "third", "", ""), ip(1, "first", "", ""), ip(2, "adopted", "10.70.0.2", ""), ip(4, "fourth", "", ""),
		ip(5, "small", "", "small"), ip(6, "nowhere", "", "absent"), ip(7, "early", "", "waiting"),
	}
	last := map[types.UID]netip.Addr{}
	granted, refused := planIPs(ips, []api.Network{external, small, waiting}, last)
	got := map[string]string{}
	for _, i := range granted {
		got[ips[i].Name] = string(ips[i].Status.IP) + " " + string(ips[i].Status.CIDR)
	}
	assert.Equal(
		t,
		map[string]string{"first": "10.70.0.1 10.70.0.0/30", "third": "10.70.0.3 10.70.0.0/30", "small": "10.80.0.0 10.80.0.0/31"},
		got,
	)
	reasons := map[string]string{}
	for i, why := range refused {
		reasons[ips[i].Name] = why.reason
		assert.NotEmpty(t, why.message)
	}
	assert.Equal(t, map[string]string{"fourth": exhaustedReason, "nowhere": networkMissingReason, "early": networkMissingReason}, reasons)
	assert.Equal(t, "10.70.0.3", last["external"].String())

	// An address that has become free is granted again only after all others.
	ips = []api.IP{ip(1, "a", "10.70.0.3", ""), ip(2, "b", "", "")}
	last = map[types.UID]netip.Addr{"external": netip.MustParseAddr("10.70.0.1")}
	planIPs(ips, []api.Network{external}, last)
	assert.Equal(t, "10.70.0.2", string(ips[1].Status.IP))

	// If there is no external range, or more than one, there is no default.
	for _, networks := range [][]api.Network{{small}, {external, network(2, "second 10.71.0.0/16 10.71.0.0/16", "external-cidr")}} {
		ips = []api.IP{ip(1, "a", "", "")}
		_, refused = planIPs(ips, networks, map[types.UID]netip.Addr{})
		assert.Equal(t, []string{networkMissingReason}, reasonsOf(refused))
	}
	// The addresses of a peer are granted by the peer itself.
	_, refused = planIPs(
		[]api.IP{ip(1, "a", "", "ofPeer")},
		[]api.Network{network(1, "ofPeer 10.1.0.0/16 10.1.0.0/16", "ofPeer")},
		map[types.UID]netip.Addr{},
	)
	assert.Equal(t, []string{invalidReason}, reasonsOf(refused))

	// If two Networks overlap, an address in both of them is granted only once.
	shared := []api.Network{
		network(1, "p 10.1.0.0/16 10.1.0.0/16", "notRemapped", "shared"),
		network(2, "q 10.1.0.0/20 10.1.0.0/20", "notRemapped", "shared"),
	}
	ips = []api.IP{ip(1, "a", "", "p"), ip(2, "b", "", "q"), ip(3, "c", "", "p")}
	planIPs(ips, shared, map[types.UID]netip.Addr{})
	assert.Equal(t, "10.1.0.0 10.1.0.1 10.1.0.2", fmt.Sprintf("%s %s %s", ips[0].Status.IP, ips[1].Status.IP, ips[2].Status.IP))

	external.Spec.PreAllocated = maxPreAllocated + 1
	_, refused = planIPs([]api.IP{ip(1, "a", "", "")}, []api.Network{external}, map[types.UID]netip.Addr{})
	assert.Equal(t, []string{invalidReason}, reasonsOf(refused))
}

// TestRangesOfIPsStay checks that IPs keep their range after its Network was deleted. A peer must get another range,
// and a recreated Network must get the range again.
func TestRangesOfIPsStay(t *testing.T) {
	ip := api.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	ip.Status.IP, ip.Status.CIDR = "10.70.0.7", "10.70.0.0/16"
	networks := []api.Network{network(1, "peer 10.70.0.0/16", "ofPeer"), network(2, "again 10.71.0.0/16", "external-cidr")}
	planNetworks(networks, nil, listUses([]api.IP{ip, ip}))
	assert.Equal(t, "10.68.0.0/16 10.71.0.0/16", fmt.Sprintf("%s %s", networks[0].Status.CIDR, networks[1].Status.CIDR))
	networks = []api.Network{network(1, "again 10.70.0.0/16", "external-cidr")}
	planNetworks(networks, nil, listUses([]api.IP{ip}))
	assert.Equal(t, "10.70.0.0/16", string(networks[0].Status.CIDR))
}

func reasonsOf(refused map[int]refusal) (reasons []string) {
	for _, i := range slices.Sorted(maps.Keys(refused)) {
		reasons = append(reasons, refused[i].reason)
	}
	return reasons
}

// TestWhatIsGrantedTwiceIsFound checks that if two controller managers grant the same range or address, one of them
// finds the grant of the other one.
func TestWhatIsGrantedTwiceIsFound(t *testing.T) {
	a, b := network(1, "a 10.1.0.0/16 10.1.0.0/16"), network(2, "b 10.1.0.0/20 10.1.0.0/20")
	all := []api.Network{a, b}
	assert.Equal(t, "b", findSharedRange(&a, all).Name)
	assert.Equal(t, "a", findSharedRange(&b, all).Name)
	assert.Nil(t, findSharedRange(&a, []api.Network{a, network(3, "c 10.2.0.0/16 10.2.0.0/16"), network(4, "d 10.1.0.0/16")}))
	p := network(1, "p 10.1.0.0/16 10.1.0.0/16", "notRemapped", "shared")
	q := network(2, "q 10.1.0.0/16 10.1.0.0/16", "notRemapped", "shared")
	assert.Nil(t, findSharedRange(&p, []api.Network{p, q}))
	first, second := api.IP{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, api.IP{ObjectMeta: metav1.ObjectMeta{UID: "2"}}
	first.Status.IP, second.Status.IP = "10.70.0.1", "10.70.0.1"
	assert.Equal(t, types.UID("2"), findSharedAddress(&first, []api.IP{first, second}).UID)
	second.Status.IP = "10.70.0.2"
	assert.Nil(t, findSharedAddress(&first, []api.IP{first, second}))
}
