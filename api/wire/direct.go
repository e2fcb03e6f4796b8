// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "strconv"

// DirectConnections is what DirectConnectionsDataAnnotation holds, as JSON.
type DirectConnections struct {
	// ClusterAddresses are the addresses of endpoints, as the consumer knows
	// them, by the id of the third cluster in which they live.
	ClusterAddresses map[string][]string `json:"clusterAddresses"`
}

// ByAddress returns the cluster of each address, as a new map.
func (d DirectConnections) ByAddress() map[string]string {
	clusters := map[string]string{}
	for cluster, addresses := range d.ClusterAddresses {
		for _, address := range addresses {
			clusters[address] = max(cluster, clusters[address]) // an address of two clusters is of the same one each time
		}
	}
	return clusters
}

// ThirdAddress is an address and the third cluster in which it lives.
type ThirdAddress struct{ Cluster, Address string }

// EncodeDirectConnections returns the JSON of DirectConnections, clusters in
// the order of their ids, and sorts the list by them. It does without maps and
// encoding/json, which would be most of the module of a plugin.
func EncodeDirectConnections(list []ThirdAddress) string {
	sortByCluster(list)
	text := []byte(`{"clusterAddresses":{`)
	for i, third := range list {
		switch {
		case i > 0 && list[i-1].Cluster == third.Cluster:
			text = append(text, ',')
		default:
			if i > 0 {
				text = append(text, "],"...)
			}
			text = append(appendQuoted(text, third.Cluster), ":["...)
		}
		text = appendQuoted(text, third.Address)
	}
	if len(list) > 0 {
		text = append(text, ']')
	}
	return string(append(text, "}}"...))
}

// sortByCluster keeps the order of addresses of a cluster. The list is short,
// and mostly in order.
func sortByCluster(list []ThirdAddress) {
	for i := range list {
		for j := i; j > 0 && list[j].Cluster < list[j-1].Cluster; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
}

// appendQuoted appends a JSON string. Ids and addresses need no escapes; what
// are inserted in their place must not break out of it.
func appendQuoted(text []byte, s string) []byte {
	text = append(text, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			text = append(text, '\\', c)
		case c < 0x10:
			text = strconv.AppendUint(append(text, `\u000`...), uint64(c), 16)
		case c < 0x20:
			text = strconv.AppendUint(append(text, `\u00`...), uint64(c), 16)
		default:
			text = append(text, c)
		}
	}
	return append(text, '"')
}

// UsesDirectConnections reads a value of UseDirectConnectionsAnnotation. It is
// not valid when it is neither true nor false; it means false then.
func UsesDirectConnections(value string) (uses, valid bool) {
	switch value {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}
