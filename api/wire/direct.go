// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "strconv"

// DirectConnections is the value of DirectConnectionsDataAnnotation, which is encoded as JSON.
type DirectConnections struct {
	// ClusterAddresses contains the addresses of endpoints in third clusters, in the form in which the consumer knows
	// them. The keys are the IDs of the third clusters.
	ClusterAddresses map[string][]string `json:"clusterAddresses"`
}

// ByAddress returns a new map from addresses to cluster IDs.
func (d DirectConnections) ByAddress() map[string]string {
	clusters := map[string]string{}
	for cluster, addresses := range d.ClusterAddresses {
		for _, address := range addresses {
			// An address that is listed for two clusters always gets the ID that is last in the order of strings.
			clusters[address] = max(cluster, clusters[address])
		}
	}
	return clusters
}

// ThirdAddress is the address of an endpoint in a third cluster, and the ID of this cluster.
type ThirdAddress struct{ Cluster, Address string }

// EncodeDirectConnections returns the JSON of DirectConnections, with the clusters ordered by their IDs. It sorts
// list by the IDs. It does not use maps and encoding/json, because these would make up most of a plugin module.
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

// sortByCluster sorts the list by cluster and keeps the order of the addresses of a cluster. The list is short, and
// mostly sorted already.
func sortByCluster(list []ThirdAddress) {
	for i := range list {
		for j := i; j > 0 && list[j].Cluster < list[j-1].Cluster; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
}

// appendQuoted appends s as a JSON string. IDs and addresses need no escaping. Other texts are escaped, so that they
// cannot inject JSON.
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

// UsesDirectConnections parses the value of UseDirectConnectionsAnnotation. A value other than true and false is not
// valid, and counts as false.
func UsesDirectConnections(value string) (uses, valid bool) {
	switch value {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}
