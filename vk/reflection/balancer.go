// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
)

// balancerStatus returns the status without load balancer addresses that cannot belong to the provider, and warns
// about the omitted addresses.
func balancerStatus(e *engine.Env, w *evaluation.Worker, local *unstructured.Unstructured, status map[string]any) map[string]any {
	status, omitted := allowedBalancers(e, status)
	if len(omitted) > 0 {
		e.WarnOfAddresses(w, local, omitted)
	}
	return status
}

// serviceStatus does the same as balancerStatus for a Service. It also marks the remaining addresses so that
// kube-proxy does not intercept traffic to them.
func serviceStatus(e *engine.Env, w *evaluation.Worker, local *unstructured.Unstructured, status map[string]any) map[string]any {
	return throughBalancer(balancerStatus(e, w, local, status))
}

// allowedBalancers returns the status without load balancer addresses that cannot belong to the provider, and the
// omitted addresses.
func allowedBalancers(e *engine.Env, status map[string]any) (allowed map[string]any, omitted []string) {
	balancer, _ := status["loadBalancer"].(map[string]any)
	entries, _ := balancer["ingress"].([]any)
	kept := make([]any, 0, len(entries))
	for _, item := range entries {
		entry, _ := item.(map[string]any)
		if ip, _ := entry["ip"].(string); ip != "" && e.IsNotAllowed(ip, e.Options().ForeignCIDRs) {
			omitted = append(omitted, ip)
			continue
		}
		kept = append(kept, item)
	}
	if len(omitted) == 0 {
		return status, nil
	}
	balancer, status = maps.Clone(balancer), maps.Clone(status)
	balancer["ingress"], status["loadBalancer"] = kept, balancer
	return status, omitted
}

// throughBalancer returns the status of a Service with ipMode Proxy for all IPs, so that traffic goes to the load
// balancer itself. In the default mode, VIP, kube-proxy intercepts traffic to the address in this cluster and sends
// it to the Service. A provider that reports a foreign address could thus receive the traffic of all pods to that
// address. (Kubernetes: ipMode of load balancers; similar to CVE-2020-8554.)
func throughBalancer(status map[string]any) map[string]any {
	balancer, _ := status["loadBalancer"].(map[string]any)
	entries, _ := balancer["ingress"].([]any)
	if len(entries) == 0 {
		return status
	}
	through := make([]any, len(entries))
	for i, item := range entries {
		through[i] = item
		entry, _ := item.(map[string]any)
		if ip, _ := entry["ip"].(string); ip != "" {
			entry = maps.Clone(entry)
			entry["ipMode"] = string(corev1.LoadBalancerIPModeProxy)
			through[i] = entry
		}
	}
	balancer, status = maps.Clone(balancer), maps.Clone(status)
	balancer["ingress"], status["loadBalancer"] = through, balancer
	return status
}
