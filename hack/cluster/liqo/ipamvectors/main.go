// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Ipamvectors prints the ranges that Liqo's address allocator grants for random requests, as JSON. internal/ipam must
// grant the same ranges.
//
//	go -C hack/cluster/liqo run ./ipamvectors > internal/ipam/testdata/liqo.json
package main

import (
	"encoding/json"
	"log"
	"math/rand/v2"
	"net/netip"
	"os"

	ipamcore "github.com/liqotech/liqo/pkg/ipam/core"
)

// vector is one decision: the range that Liqo's allocator grants for a requested range while other ranges are in use.
// The granted range is empty if the allocator cannot grant a range.
type vector struct {
	InUse []netip.Prefix `json:"inUse"`
	Wish  netip.Prefix   `json:"wish"`
	Grant string         `json:"grant"`
}

// vectors is the number of decisions. Fewer than maxInUse ranges are already in use in each decision.
const vectors, maxInUse = 400, 40

func main() {
	pools := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("172.16.0.0/12")}
	random := rand.New(rand.NewPCG(1, 1))
	var all []vector
	for range vectors {
		allocator, err := ipamcore.NewIpam(pools)
		if err != nil {
			log.Fatal(err)
		}
		var v vector
		for range random.IntN(maxInUse) {
			if got := allocator.NetworkAcquireWithPrefix(randomRange(random)); got != nil {
				v.InUse = append(v.InUse, *got)
			}
		}
		v.Wish = randomRange(random)
		grant := allocator.NetworkAcquireWithPrefix(v.Wish)
		if grant == nil {
			grant = allocator.NetworkAcquire(v.Wish.Bits())
		}
		if grant != nil {
			v.Grant = grant.String()
		}
		all = append(all, v)
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		log.Fatal(err)
	}
}

// randomRange returns a random range inside or outside of the pools. Most ranges are near the beginning of a pool, so
// that many of them overlap.
func randomRange(random *rand.Rand) netip.Prefix {
	starts := [][4]byte{{10, 0, 0, 0}, {10, 0, 0, 0}, {10, 128, 0, 0}, {192, 168, 0, 0}, {172, 16, 0, 0}, {100, 64, 0, 0}}
	address := starts[random.IntN(len(starts))]
	address[1] += byte(random.IntN(8))
	address[2] = byte(random.IntN(4) * 64)
	if address[0] == 192 {
		address[1] = 168
	}
	return netip.PrefixFrom(netip.AddrFrom4(address), 8+random.IntN(17)).Masked()
}
