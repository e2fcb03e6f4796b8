// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ipam_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/internal/ipam"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func uses(ranges ...string) (all []ipam.Use) {
	for _, text := range ranges {
		all = append(all, ipam.Use{Range: prefix(text), Holder: "Network " + text})
	}
	return all
}

func TestFindRange(t *testing.T) {
	for _, c := range []struct{ name, inUse, wish, want string }{
		{"nothing is in use", "", "10.1.0.0/16", "10.1.0.0/16"},
		{"the wish has host bits", "", "10.1.2.3/16", "10.1.0.0/16"},
		{"the same range is in use", "10.1.0.0/16", "10.1.0.0/16", "10.0.0.0/16"},
		{"a part is in use", "10.1.7.0/24", "10.1.0.0/16", "10.0.0.0/16"},
		{"a larger range is in use", "10.0.0.0/12", "10.1.0.0/16", "10.16.0.0/16"},
		{"a half that is split already goes first", "10.0.0.0/16,10.200.0.0/16", "10.0.0.0/16", "10.1.0.0/16"},
		{"an upper half that is split goes before an empty lower one", "10.200.0.0/16", "10.200.0.0/16", "10.201.0.0/16"},
		{"a small hole is used before a large free block", "10.0.0.0/24,10.0.2.0/24", "10.0.0.0/24", "10.0.1.0/24"},
		{"the first pool is full", "10.0.0.0/8", "10.1.0.0/16", "192.168.0.0/16"},
		{"two pools are full", "10.0.0.0/8,192.168.0.0/16", "10.1.0.0/16", "172.16.0.0/16"},
		{"the wish is outside the pools", "", "100.64.0.0/16", "10.0.0.0/16"},
		{"a single address", "10.0.0.0/32", "10.0.0.0/32", "10.0.0.1/32"},
		{"a use reaches over the pool", "0.0.0.0/1", "10.1.0.0/16", "192.168.0.0/16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var inUse []ipam.Use
			if c.inUse != "" {
				inUse = uses(strings.Split(c.inUse, ",")...)
			}
			found, err := ipam.FindRange(ipam.DefaultPools(), inUse, prefix(c.wish))
			require.NoError(t, err)
			assert.Equal(t, c.want, found.String())
		})
	}
}

func TestPoolsAreExhausted(t *testing.T) {
	_, err := ipam.FindRange(ipam.DefaultPools(), uses("10.0.0.0/8", "192.168.0.0/17", "192.168.200.0/24", "172.16.0.0/12"), prefix("10.1.0.0/16"))
	var exhausted *ipam.ExhaustedError
	require.ErrorAs(t, err, &exhausted)
	assert.Len(t, exhausted.Uses, 4)
	for _, part := range []string{"/16", "10.1.0.0/16", "192.168.0.0/17 by Network 192.168.0.0/17", "172.16.0.0/12"} {
		assert.Contains(t, err.Error(), part)
	}
}

// TestDecisionsOfLiqo checks that the decisions are the same as the decisions of Liqo's allocator.
// hack/cluster/liqo/ipamvectors generates the expected results with Liqo's code.
func TestDecisionsOfLiqo(t *testing.T) {
	text, err := os.ReadFile("testdata/liqo.json")
	require.NoError(t, err)
	var vectors []struct {
		InUse []netip.Prefix
		Wish  netip.Prefix
		Grant string
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.Greater(t, len(vectors), 300)
	for i, v := range vectors {
		var inUse []ipam.Use
		for _, r := range v.InUse {
			inUse = append(inUse, ipam.Use{Range: r, Holder: "Liqo"})
		}
		grant := ""
		if found, err := ipam.FindRange(ipam.DefaultPools(), inUse, v.Wish); err == nil {
			grant = found.String()
		}
		assert.Equal(t, v.Grant, grant, "decision %d: %s beside %s", i, v.Wish, v.InUse)
	}
}

// TestGrantsNeverOverlap checks that a granted range does not overlap a range in use, that a free range is found if
// there is one, and that the requested range is granted whenever possible.
func TestGrantsNeverOverlap(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		pools := []netip.Prefix{prefix("10.0.0.0/24"), prefix("192.168.0.0/26")}
		var inUse []ipam.Use
		for step := range 60 {
			if len(inUse) > 0 && random.IntN(4) == 0 {
				n := random.IntN(len(inUse))
				inUse = append(inUse[:n], inUse[n+1:]...)
				continue
			}
			wish := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))}), 26+random.IntN(7)).Masked()
			found, err := ipam.FindRange(pools, inUse, wish)
			exists := freeExists(pools, inUse, wish.Bits())
			if err != nil {
				require.False(t, exists, "seed %d, step %d: %v", seed, step, err)
				continue
			}
			require.Nil(t, ipam.FindOverlap(found, inUse), "seed %d, step %d", seed, step)
			require.Equal(t, wish.Bits(), found.Bits())
			if ipam.FindOverlap(wish, inUse) == nil {
				require.Equal(t, wish, found, "seed %d, step %d: the wish was free", seed, step)
			}
			inUse = append(inUse, ipam.Use{Range: found, Holder: fmt.Sprint(step)})
		}
	}
}

// freeExists reports whether the pools contain a free range. It tries every possible range.
func freeExists(pools []netip.Prefix, inUse []ipam.Use, bits int) bool {
	for _, pool := range pools {
		for address := pool.Addr(); pool.Contains(address); address = address.Next() {
			if candidate := netip.PrefixFrom(address, bits); candidate.Masked() == candidate && bits >= pool.Bits() && ipam.FindOverlap(candidate, inUse) == nil {
				return true
			}
		}
	}
	return false
}

func TestFindAddress(t *testing.T) {
	r := prefix("10.70.0.0/30")
	at := func(last string) netip.Addr { return netip.MustParseAddr("10.70.0." + last) }
	for _, c := range []struct {
		name, want string
		inUse      []string
		last       netip.Addr
	}{
		{name: "the first one", want: "0"},
		{name: "after the reserved one", want: "1", inUse: []string{"0"}},
		{name: "after the last one", want: "3", inUse: []string{"0", "2"}, last: at("2")},
		{name: "from the begin again", want: "1", inUse: []string{"0", "3"}, last: at("3")},
		{name: "the last one is of another range", want: "1", inUse: []string{"0"}, last: netip.MustParseAddr("10.80.0.2")},
	} {
		t.Run(c.name, func(t *testing.T) {
			inUse := map[netip.Addr]bool{}
			for _, text := range c.inUse {
				inUse[at(text)] = true
			}
			found, err := ipam.FindAddress(r, inUse, c.last)
			require.NoError(t, err)
			assert.Equal(t, at(c.want), found)
		})
	}
	_, err := ipam.FindAddress(r, map[netip.Addr]bool{at("0"): true, at("1"): true, at("2"): true, at("3"): true}, at("1"))
	require.ErrorContains(t, err, "10.70.0.0/30")
}

func TestParsePeerRanges(t *testing.T) {
	ranges, err := ipam.ParsePeerRanges([]string{"10.1.0.0/16", "100.64.0.0/10"})
	require.NoError(t, err)
	assert.Equal(t, []netip.Prefix{prefix("10.1.0.0/16"), prefix("100.64.0.0/10")}, ranges)
	for _, c := range []struct{ text, says string }{
		{"0.0.0.0/0", "larger than /8"},
		{"10.0.0.0/7", "larger than /8"},
		{"127.0.0.0/8", "loopback"},
		{"127.0.0.1/32", "loopback"},
		{"169.254.18.0/30", "tunnel"},
		{"224.0.0.0/8", "multicast"},
		{"250.0.0.0/8", "reserved"},
		{"0.1.0.0/16", "this network"},
		{"fd00::/64", "IPv4"},
		{"::ffff:10.0.0.0/104", "IPv4"},
		{"10.1.2.3/16", "10.1.0.0/16"},
		{"10.1.0.0", "no address range"},
		{"10.1.0.0/16,10.1.2.0/24", "overlap"},
		{strings.Repeat("10.1.0.0/16,", 16) + "10.2.0.0/16", "at most 16"},
	} {
		_, err := ipam.ParsePeerRanges(strings.Split(c.text, ","))
		assert.ErrorContains(t, err, c.says, c.text)
	}
}

func FuzzParsePeerRanges(f *testing.F) {
	for _, text := range []string{"10.1.0.0/16", "::/0", "1.2.3.4/33", "a", "10.1.0.0/16%eth0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ranges, err := ipam.ParsePeerRanges([]string{text})
		if err != nil {
			return
		}
		found, err := ipam.FindRange(ipam.DefaultPools(), []ipam.Use{{Range: ranges[0], Holder: "fuzz"}}, ranges[0])
		var exhausted *ipam.ExhaustedError
		if err != nil && !errors.As(err, &exhausted) || err == nil && found.Overlaps(ranges[0]) {
			t.Errorf("%s for %s, %v", found, text, err)
		}
	})
}

// BenchmarkFindRange measures finding a free range when 200 clusters have four ranges each.
func BenchmarkFindRange(b *testing.B) {
	var inUse []ipam.Use
	for range 800 {
		found, err := ipam.FindRange(ipam.DefaultPools(), inUse, prefix("10.0.0.0/20"))
		if err != nil {
			b.Fatal(err)
		}
		inUse = append(inUse, ipam.Use{Range: found})
	}
	for b.Loop() {
		if _, err := ipam.FindRange(ipam.DefaultPools(), inUse, prefix("10.0.0.0/20")); err != nil {
			b.Fatal(err)
		}
	}
}
