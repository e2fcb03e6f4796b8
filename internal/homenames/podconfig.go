// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"slices"
)

const (
	// maxNameservers, maxSearches and maxSearchBytes are the limits of the API server for spec.dnsConfig of a pod.
	maxNameservers = 3
	maxSearches    = 32
	maxSearchBytes = 2048
	// defaultDots is the value of the option ndots that Kubernetes sets for pods with the DNS policy ClusterFirst.
	defaultDots = "5"
)

// UsesClusterDNS reports whether a pod with this spec uses the DNS of its cluster. A pod that uses the network of its
// node does so only with the policy ClusterFirstWithHostNet.
func UsesClusterDNS(spec map[string]any) bool {
	policy, _ := spec["dnsPolicy"].(string)
	hostNetwork, _ := spec["hostNetwork"].(bool)
	switch policy {
	case "", "ClusterFirst":
		return !hostNetwork
	case "ClusterFirstWithHostNet":
		return true
	}
	return false
}

// DNSConfig returns spec.dnsConfig of a pod with the DNS policy None that queries the resolver at address, and has the
// search domains of the namespace home of a cluster with the given domain. As with the policy ClusterFirst, own, which is
// the configuration of the pod itself, is appended, and its options take precedence.
//
// The DNS of this cluster is not the second name server. Some libraries, such as musl, query all servers at once and
// use the first answer, and this cluster's DNS would answer that the consumer's names do not exist.
func DNSConfig(address, home, domain string, own map[string]any) map[string]any {
	nameservers := append([]string{address}, textsOf(own["nameservers"])...)
	searches := append([]string{home + ".svc." + domain, "svc." + domain, domain}, textsOf(own["searches"])...)
	options := []any{map[string]any{"name": "ndots", "value": defaultDots}}
	if given, _ := own["options"].([]any); len(given) > 0 {
		if slices.ContainsFunc(given, isNdots) {
			options = nil
		}
		options = append(options, given...)
	}
	return map[string]any{
		"nameservers": limitTexts(nameservers, maxNameservers, maxSearchBytes),
		"searches":    limitTexts(searches, maxSearches, maxSearchBytes),
		"options":     options,
	}
}

func isNdots(option any) bool {
	fields, _ := option.(map[string]any)
	return fields["name"] == "ndots"
}

// limitTexts returns the texts without duplicates, up to a number of texts, and a number of bytes including separators.
// The kubelet, too, omits those beyond the limits.
func limitTexts(texts []string, count, size int) []any {
	var kept []any
	used := -1 // there is one separator less than texts
	for _, text := range texts {
		if slices.Contains(kept, any(text)) {
			continue
		}
		used += len(text) + 1
		if len(kept) == count || used > size {
			break
		}
		kept = append(kept, text)
	}
	return kept
}

// textsOf returns the texts of a list.
func textsOf(list any) []string {
	items, _ := list.([]any)
	var texts []string
	for _, item := range items {
		if text, ok := item.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}
