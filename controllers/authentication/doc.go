// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package authentication handles, on a provider, the requests of consumers that peer with Liqo's protocol.
//
// A consumer gets a nonce, signs it with the key of its cluster, and creates a Tenant to request access for its
// controllers, a ResourceSlice to request resources and access for a virtual kubelet, and a Renew to replace a
// certificate. The package has three controllers, which request certificates from this cluster:
//
//	Tenants         nonces, the certificate and the RoleBinding of the consumer's controllers, cordons and drains
//	ResourceSlices  the certificate of the slice's user, and the granted resources (its Quota: package resourceslice)
//	Renewals        the next certificate of a Tenant or a slice, and of consumers that refractctl peer has joined
//
// An approver of client certificates can impersonate any user, and most objects here are written by consumers.
// Therefore a request is only signed if it is in the tenant namespace of the consumer, has the key of the Tenant, and
// has exactly the subject that the object entitles the consumer to. A key must have signed the nonce or, for
// consumers without a Tenant, must be recorded on the tenant namespace. The process needs strong permissions for
// this, so an administrator has to enable it.
package authentication
