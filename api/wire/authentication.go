// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Names with which a consumer joins its provider by Liqo's protocol.
const (
	// NonceSecret is the name of the Secret, in the tenant namespace of a consumer on the provider, with the nonce
	// that the consumer must sign. NonceKey is the key of the nonce in the Secret.
	NonceSecret = "liqo-nonce"
	NonceKey    = "nonce"
	// NonceLabel marks the Secret with the nonce.
	NonceLabel = "liqo.io/nonce"
	// SignedNonceSecret is the name of the Secret, in the tenant namespace of a provider on the consumer, with the nonce
	// of the provider (NonceKey). The consumer adds its signature with the key SignedNonceKey.
	SignedNonceSecret = "liqo-signed-nonce"
	SignedNonceKey    = "signedNonce"
	// SignedNonceLabel marks the Secret with the nonce to be signed.
	SignedNonceLabel = "liqo.io/signed-nonce"
	// ClusterKeySecret is the name of the Secret, in the namespace of the installation, with the key of this cluster,
	// with which it authenticates to providers (PrivateKeyField and PublicKeyField, in PEM).
	ClusterKeySecret = "authentication-keys"
	// IdentityTypeLabel on a Secret with a kubeconfig is the type of its Identity.
	IdentityTypeLabel = "liqo.io/identity-type"
	// ResourceSliceNameLabel on an Identity and on a VirtualNode is the name of its ResourceSlice.
	ResourceSliceNameLabel = "liqo.io/resourceslice-name"
	// CreateVirtualNodeAnnotation on a ResourceSlice of the consumer requests a VirtualNode, unless it is "false".
	CreateVirtualNodeAnnotation = "liqo.io/create-virtual-node"
	// RenewAnnotation ("true") on an Identity requests a new certificate.
	RenewAnnotation = "liqo.io/renew"

	// TenantFinalizer is the finalizer that Liqo's controllers set on a Tenant. Refract's controllers do not need it,
	// and remove it.
	TenantFinalizer = "tenant.liqo.io/finalizer"
	// AdmittedByLabel with the value AdmittedByRefractctl marks a Tenant whose consumer was admitted by refractctl.
	// Such a consumer has not proved that it owns a key, gets no certificate through the Tenant, and needs no Quota.
	AdmittedByLabel      = "plugins.refract.io/admitted-by"
	AdmittedByRefractctl = "refractctl"
	// ControlPlaneGroup is the group in the certificates of the consumers' controllers.
	ControlPlaneGroup = "liqo.io"

	// CordonAnnotation ("true") on a ResourceSlice on the provider means that new pods of its user are rejected.
	CordonAnnotation = "liqo.io/cordon"
	// ConsumerQuota is the name of the ResourceQuota in each remote namespace that enforces the limits on objects
	// from the consumer's Quotas.
	ConsumerQuota = "refract-quota"
	// CordonedSliceAnnotation on a Quota on the provider is the UID of a ResourceSlice that an administrator has
	// cordoned. The Quota stays cordoned if the consumer deletes and recreates the ResourceSlice.
	CordonedSliceAnnotation = "plugins.refract.io/cordoned-resource-slice"
	// CordonTenantAnnotation is like CordonAnnotation, but is written by a controller if the Tenant is cordoned. On a
	// Quota of a consumer that refractctl has admitted, it records that the Quota is cordoned because the Tenant is.
	CordonTenantAnnotation = "liqo.io/cordon-tenant"
)

// ControlPlaneIdentity returns the name of the Identity, in the tenant namespace of a provider, with which the
// controllers of a consumer access the provider.
func ControlPlaneIdentity(provider string) string { return "controlplane-" + provider }
