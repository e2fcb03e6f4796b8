// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package authentication handles, on a provider, the requests of consumers that peer with Liqo's protocol.
//
// A consumer gets a nonce, signs it with the key of its cluster, and creates a Tenant to request access for its
// controllers, a ResourceSlice to request resources and access for a virtual kubelet, and a Renew to replace a
// certificate. The controllers request certificates from the cluster for these:
//
//	Tenants         nonces, the certificate and the RoleBinding of the consumer's controllers, cordons and drains
//	ResourceSlices  the certificate of the slice's user, and what it is granted; its Quota is made by package resourceslice
//	Renewals        the next certificate of either, and of consumers that refractctl peer has joined
//
// Whoever approves client certificates can become anybody, and most of what is read here was written by consumers. So nothing is
// signed that is not for exactly the subject to which the object entitles, with the key of the Tenant, in the tenant namespace of that
// consumer; and a key counts that has signed the nonce, or, of consumers without a Tenant, that is recorded on the tenant namespace. The process needs strong rights for it, which is why an
// administrator turns it on.
package authentication
