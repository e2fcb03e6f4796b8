// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

// RemapLoadBalancer translates the addresses in status.loadBalancer of the
// provider's Service or Ingress to the ones that the consumer uses. Addresses
// without a translation (yet) are removed with a warning: an address of the
// provider may belong to somebody else here. Host names and ports mean the
// same everywhere and stay. An entry that becomes empty is removed.
func RemapLoadBalancer(ctx Context, obj Object) {
	entries := obj.EnsureMap("status.loadBalancer").Get("ingress")
	unmapped, example := 0, ""
	// Iterate from the end: removing an element moves later ones.
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
			obj.Remove("status.loadBalancer.ingress") // the API server does not store an empty list
		}
		ctx.Warn("load-balancer addresses without a mapping in this cluster were omitted, such as ", example)
	}
}
