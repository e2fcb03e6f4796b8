// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

// RemapLoadBalancer translates the addresses in status.loadBalancer of a Service
// or an Ingress of the provider, as the consumer reaches them. It removes those
// without a translation (yet), with a warning: an address of the provider may
// belong to somebody else here. Host names mean the same everywhere and stay,
// and so do ports; an entry of which nothing is left goes.
func RemapLoadBalancer(ctx Context, obj Object) {
	entries := obj.EnsureMap("status.loadBalancer").Get("ingress")
	unmapped, example := 0, ""
	// From the end, so that removing an element does not move those to come.
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
			obj.Remove("status.loadBalancer.ingress") // as the API server stores it
		}
		ctx.Warn("load-balancer addresses without a mapping in this cluster were omitted, such as ", example)
	}
}
