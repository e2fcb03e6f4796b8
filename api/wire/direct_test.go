// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/refract-project/refract/api/wire"
)

// TestDirectConnectionsAreJSON checks that the encoded value can be decoded again, and has the field name that Liqo's
// providers expect.
func TestDirectConnectionsAreJSON(t *testing.T) {
	for _, tc := range []struct {
		list []wire.ThirdAddress
		want string
	}{
		{nil, `{"clusterAddresses":{}}`},
		{[]wire.ThirdAddress{{"turin", "10.2.0.9"}, {"naples", "fd00::1"}, {"turin", "10.2.0.8"}},
			`{"clusterAddresses":{"naples":["fd00::1"],"turin":["10.2.0.9","10.2.0.8"]}}`},
		{[]wire.ThirdAddress{{"a\"b\\c\x00\x1f\n", "é 日本"}}, `{"clusterAddresses":{"a\"b\\c\u0000\u001f\u000a":["é 日本"]}}`},
	} {
		want := map[string]string{}
		for _, third := range tc.list {
			want[third.Address] = third.Cluster
		}
		got := wire.EncodeDirectConnections(tc.list)
		if got != tc.want {
			t.Errorf("%v is written as %s, want %s", tc.list, got, tc.want)
		}
		var read wire.DirectConnections
		if err := json.Unmarshal([]byte(got), &read); err != nil || !maps.Equal(read.ByAddress(), want) {
			t.Errorf("%s is read as %v (%v), want %v", got, read.ByAddress(), err, want)
		}
	}
}

func TestAnAddressOfTwoClustersIsOfTheSameOneEachTime(t *testing.T) {
	data := wire.DirectConnections{ClusterAddresses: map[string][]string{"turin": {"10.2.0.9"}, "naples": {"10.2.0.9"}, "bari": {"10.2.0.9"}}}
	var found []string
	for range 50 {
		found = append(found, data.ByAddress()["10.2.0.9"])
	}
	if slices.Sort(found); found[0] != "turin" || found[len(found)-1] != "turin" {
		t.Errorf("it is of %v", slices.Compact(found))
	}
}

func TestUsesDirectConnections(t *testing.T) {
	for value, want := range map[string][2]bool{
		"true": {true, true}, "True": {true, true}, "false": {false, true}, "FALSE": {false, true},
		"": {false, false}, "yes": {false, false}, " true": {false, false},
	} {
		if uses, valid := wire.UsesDirectConnections(value); [2]bool{uses, valid} != want {
			t.Errorf("%q: uses %t, valid %t, want %v", value, uses, valid, want)
		}
	}
}
