// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// How a consumer that runs Liqo joins its provider.
const (
	// NonceSecret names, in the tenant namespace of a consumer on the provider,
	// the Secret with what the consumer is to sign, and NonceKey the key in it.
	NonceSecret = "liqo-nonce"
	NonceKey    = "nonce"
	// NonceLabel marks it.
	NonceLabel = "liqo.io/nonce"
	// TenantFinalizer is what Liqo's controllers put on a Tenant. Those of this project need none, and take it off.
	TenantFinalizer = "tenant.liqo.io/finalizer"
	// AdmittedByLabel marks a Tenant of a consumer that refractctl has admitted (AdmittedByRefractctl): it has proved no key, gets no certificate by the
	// Tenant, and needs no Quota.
	AdmittedByLabel      = "plugins.refract.io/admitted-by"
	AdmittedByRefractctl = "refractctl"
	// ControlPlaneGroup is the group in the certificates of the controllers of consumers.
	ControlPlaneGroup = "liqo.io"

	// CordonAnnotation ("true"), on a ResourceSlice on the provider, keeps new pods of its user out.
	CordonAnnotation = "liqo.io/cordon"
	// ConsumerQuota is the name of the ResourceQuota in each remote namespace that limits what the Quotas of its consumer say about objects.
	ConsumerQuota = "refract-quota"
	// CordonedSliceAnnotation, on a Quota on the provider, is the UID of the ResourceSlice that an administrator cordoned. The Quota stays
	// cordoned when the consumer deletes and recreates the ResourceSlice.
	CordonedSliceAnnotation = "plugins.refract.io/cordoned-resource-slice"
	// CordonTenantAnnotation is the same, written by a controller where the Tenant is cordoned. On a Quota of a consumer that refractctl has admitted, it
	// records that the Tenant has cordoned it.
	CordonTenantAnnotation = "liqo.io/cordon-tenant"
)
