// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

// RemapLoadBalancer translates the addresses in status.loadBalancer of the provider's Service or Ingress to the
// addresses that the consumer uses. Addresses without a translation (yet) are removed with a warning, because on the
// consumer they may belong to another machine. Host names and ports stay unchanged, because they have the same
// meaning in all clusters. An entry that becomes empty is removed.
func RemapLoadBalancer(ctx Context, obj Object) {
	entries := obj.EnsureMap("status.loadBalancer").Get("ingress")
	unmapped, example := 0, ""
	// The loop starts at the end, because removing an element changes the indexes of later elements.
	for i := entries.Len("") - 1; i >= 0; i-- {
		entry := entries.At(i)
		ip := entry.String("ip")
		if ip == "" {
			continue
		}
		if mapped, ok := ctx.RemapIP(ip); ok {
			entry.SetString("ip", mapped)
			continue
		}
		unmapped, example = unmapped+1, ip
		if entry.Has("hostname") {
			entry.Remove("ip")
		} else {
			entries.RemoveAt(i)
		}
	}
	if unmapped > 0 {
		if entries.Len("") == 0 {
			// An empty list is removed, because the API server does not store it.
			obj.Remove("status.loadBalancer.ingress")
		}
		ctx.Warn("load-balancer addresses without a mapping in this cluster were omitted, such as ", example)
	}
}
