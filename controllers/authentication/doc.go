// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package authentication answers, on a provider, the consumers that join it as Liqo does.
//
// A consumer gets a nonce, signs it with the key of its cluster, and asks with a Tenant for the access of its controllers; with a
// ResourceSlice for a share and the access of a virtual kubelet; with a Renew for the certificate after the present one. The controllers
// have the cluster sign certificates for that:
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
