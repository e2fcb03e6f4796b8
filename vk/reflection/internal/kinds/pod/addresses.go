// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import "maps"

// withAllowedIPs returns the status of a pod without addresses that the provider's pods cannot have, and the omitted
// addresses. If one address is not allowed, all of them are omitted, because they belong together: the first one is
// the pod's address, and the others are its addresses in another family. The addresses of a pod on the host network
// are not checked against the pod ranges, because it has the address of its node.
func (h *Handler) withAllowedIPs(status map[string]any, hostNetwork bool) (map[string]any, []string) {
	known := h.Options().ForeignCIDRs
	if len(known) == 0 && !hostNetwork {
		known = h.Options().ForeignPodCIDRs
	}
	var omitted []string
	note := func(ip any) {
		if text, _ := ip.(string); text != "" && h.IsNotAllowed(text, known) {
			omitted = append(omitted, text)
		}
	}
	list, _ := status["podIPs"].([]any)
	for _, item := range list {
		entry, _ := item.(map[string]any)
		note(entry["ip"])
	}
	if len(list) == 0 {
		note(status["podIP"])
	}
	if len(omitted) == 0 {
		return status, nil
	}
	status = maps.Clone(status)
	delete(status, "podIP")
	delete(status, "podIPs")
	return status, omitted
}
