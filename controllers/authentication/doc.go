// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package authentication handles, on a provider, the requests of consumers that peer with Liqo's protocol.
//
// A consumer gets a nonce, signs it with the key of its cluster, and creates a Tenant to request access for its
// controllers, a ResourceSlice to request resources and access for a virtual kubelet, and a Renew to replace a
// certificate. The controllers request certificates from the cluster for these:
//
//	Tenants         nonces, the certificate and the RoleBinding of the consumer's controllers, cordons and drains
//	ResourceSlices  the certificate of the slice's user, and the granted resources; package resourceslice creates the Quota
//	Renewals        the next certificate of either
//
// Permission to approve client certificates allows impersonating any user, and consumers write most of the input of
// this package. Therefore a certificate request is approved only for the exact subject of its object, with the key of
// the Tenant, in the tenant namespace of that consumer, and only if that key has signed the nonce. Because the
// process needs this permission, the controllers are disabled by default.
package authentication
