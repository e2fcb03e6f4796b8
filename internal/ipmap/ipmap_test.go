// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ipmap

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRemap(t *testing.T) {
	for _, tc := range []struct{ addr, to, want string }{
		{"10.1.0.1", "40.32.0.0/10", "40.1.0.1"},
		{"10.255.1.1", "78.5.78.143/18", "78.5.65.1"},
		{"10.244.3.7", "10.71.0.0/16", "10.71.3.7"},
		{"10.244.3.7", "192.168.1.1/32", "192.168.1.1"},
		{"10.244.3.7", "0.0.0.0/0", "10.244.3.7"},
		{"10.244.3.255", "172.16.8.0/23", "172.16.9.255"},
		{"fe80::1", "fd00::/8", "fd80::1"},
		{"2001:db8:1:2::9", "fd00:aa:bb::/48", "fd00:aa:bb:2::9"},
		{"fe80::1", "10.0.0.0/8", "fe80::1"},
	} {
		if got := Remap(netip.MustParseAddr(tc.addr), netip.MustParsePrefix(tc.to)).String(); got != tc.want {
			t.Errorf("Remap(%s, %s) = %s, want %s", tc.addr, tc.to, got, tc.want)
		}
	}
}

func TestTableMap(t *testing.T) {
	table, err := New(Config{
		PodCIDRs: []string{"10.244.0.0/16", "10.8.0.0/16", "10.9.0.0/16", "fd00:1::/64"}, PodCIDRRemaps: []string{"10.71.0.0/16", "10.72.0.0/16", "10.9.0.0/16", "fd00:9::/64"},
		ExternalCIDRs: []string{"10.70.0.0/16"}, ExternalCIDRRemaps: []string{"10.80.0.0/16"},
	})
	require.NoError(t, err)
	for _, tc := range []struct {
		ip, want string
		ok       bool
	}{
		{"10.244.3.7", "10.71.3.7", true},
		{"10.8.0.1", "10.72.0.1", true},
		{"10.9.0.1", "10.9.0.1", true},
		{"10.70.1.1", "10.80.1.1", true},
		{"192.168.0.1", "192.168.0.1", true},
		{"fd00:1::5", "fd00:9::5", true},
		{"fd00:2::5", "fd00:2::5", true},
		{"::ffff:10.244.3.7", "10.71.3.7", true},
		{"not an address", "", false},
		{"", "", false},
	} {
		if got, ok := table.Map(tc.ip); got != tc.want || ok != tc.ok {
			t.Errorf("Map(%q) = %q, %t, want %q, %t", tc.ip, got, ok, tc.want, tc.ok)
		}
	}
	if got, ok := (*Table)(nil).Map("10.244.3.7"); got != "10.244.3.7" || !ok {
		t.Errorf("a nil table maps to %q, %t", got, ok)
	}
}

func TestNewRefuses(t *testing.T) {
	for want, config := range map[string]Config{
		"lists 2 ranges but --remote-pod-cidr-remap lists 1": {PodCIDRs: []string{"10.0.0.0/16", "10.1.0.0/16"}, PodCIDRRemaps: []string{"10.2.0.0/16"}},
		"lists 0 ranges but":   {ExternalCIDRRemaps: []string{"10.2.0.0/16"}},
		`"10.0.0.0" is not`:    {PodCIDRs: []string{"10.0.0.0"}, PodCIDRRemaps: []string{"10.2.0.0/16"}},
		`"nonsense" is not`:    {PodCIDRs: []string{"10.0.0.0/16"}, PodCIDRRemaps: []string{"nonsense"}},
		"the same IP family":   {PodCIDRs: []string{"fd00::/16"}, PodCIDRRemaps: []string{"10.2.0.0/16"}},
		"not of the same size": {ExternalCIDRs: []string{"10.0.0.0/8"}, ExternalCIDRRemaps: []string{"10.2.0.0/16"}},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v) = %v, want an error with %q", config, err, want)
		}
	}
}

func TestRanges(t *testing.T) {
	ranges, err := ParseRanges("--local-podcidr", []string{"10.200.0.0/16", "fd00::/8"})
	require.NoError(t, err)
	for ip, want := range map[string]bool{"10.200.3.4": true, "10.201.3.4": false, "fd12::1": true, "fe80::1": false, "web": false, "": false} {
		if got := ranges.Contain(ip); got != want {
			t.Errorf("Contain(%q) = %t, want %t", ip, got, want)
		}
	}
	if _, err := ParseRanges("--local-podcidr", []string{"10.200.0.0"}); err == nil || !strings.Contains(err.Error(), "--local-podcidr") {
		t.Errorf("a range without a length gives %v, want an error that names the flag", err)
	}
}

func TestSummarize(t *testing.T) {
	for name, tc := range map[string]struct{ ranges, want []string }{
		"nothing":              {nil, nil},
		"halves, and quarters": {[]string{"10.0.1.0/24", "10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24"}, []string{"10.0.0.0/22"}},
		"neighbours":           {[]string{"10.0.1.0/24", "10.0.2.0/24"}, []string{"10.0.1.0/24", "10.0.2.0/24"}},
		"contained, and twice": {[]string{"10.0.0.7/32", "10.0.0.0/16", "10.0.0.0/16", "10.0.255.0/24"}, []string{"10.0.0.0/16"}},
		"host bits":            {[]string{"10.0.0.5/24"}, []string{"10.0.0.0/24"}},
		"both families":        {[]string{"fd00::1/128", "::/1", "0.0.0.0/1", "128.0.0.0/1", "8000::/1"}, []string{"0.0.0.0/0", "::/0"}},
	} {
		ranges, err := ParseRanges("test", tc.ranges)
		require.NoError(t, err)
		var got []string
		for _, prefix := range ranges.Summarize() {
			got = append(got, prefix.String())
		}
		require.Equal(t, tc.want, got, name)
	}
}

// FuzzMap checks that the table does not panic for any text, and that the result is an address of the same family.
func FuzzMap(f *testing.F) {
	for _, seed := range []string{"10.244.3.7", "fd00:1::5", "::ffff:10.244.3.7", "fe80::1%eth0", "x"} {
		f.Add(seed)
	}
	table, err := New(Config{PodCIDRs: []string{"10.244.0.0/16", "fd00::/8"}, PodCIDRRemaps: []string{"10.71.0.0/16", "fc00::/8"}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, ip string) {
		got, ok := table.Map(ip)
		if !ok {
			return
		}
		before, after := netip.MustParseAddr(ip), netip.MustParseAddr(got)
		if before.Unmap().Is4() != after.Unmap().Is4() {
			t.Errorf("Map(%q) = %q: another family", ip, got)
		}
	})
}

// TestUnmap checks that a block is translated either completely or not at all, because parts of it could otherwise
// belong to different clusters.
func TestUnmap(t *testing.T) {
	table, err := New(Config{PodCIDRs: []string{"10.244.0.0/16", "10.9.0.0/16", "fd00:1::/64"}, PodCIDRRemaps: []string{"10.71.0.0/16", "10.9.0.0/16", "fd00:9::/64"}})
	require.NoError(t, err)
	for _, tc := range []struct {
		block, want string
		within, ok  bool
	}{
		{"10.71.0.0/16", "10.244.0.0/16", true, true},
		{"10.71.4.0/24", "10.244.4.0/24", true, true},
		{"10.71.4.7/32", "10.244.4.7/32", true, true},
		{"fd00:9::40/123", "fd00:1::40/123", true, true},
		{"10.9.3.0/24", "10.9.3.0/24", true, true}, // unchanged, because this range is not remapped
		{"10.9.0.0/15", "10.9.0.0/15", false, true},
		{"192.0.2.0/24", "192.0.2.0/24", false, true},
		{"10.0.0.0/8", "invalid Prefix", false, false},
		{"10.70.0.0/15", "invalid Prefix", false, false},
		{"10.244.4.0/24", "invalid Prefix", false, false}, // this block overlaps a remapped range of the other cluster
		{"0.0.0.0/0", "invalid Prefix", false, false},
	} {
		got, within, ok := table.Unmap(netip.MustParsePrefix(tc.block))
		if got.String() != tc.want || within != tc.within || ok != tc.ok {
			t.Errorf("Unmap(%s) = %s, %t, %t, want %s, %t, %t", tc.block, got, within, ok, tc.want, tc.within, tc.ok)
		}
	}
	if got, within, ok := (*Table)(nil).Unmap(netip.MustParsePrefix("10.0.0.0/8")); got.String() != "10.0.0.0/8" || within || !ok {
		t.Errorf("a nil table gives %s, %t, %t", got, within, ok)
	}
}
