// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package identity joins this cluster to providers by Liqo's protocol, as the consumer.
//
// An administrator of both clusters (liqoctl peer), or two administrators that exchange manifests, create the objects
// of the protocol in the tenant namespace of the provider. The package has three controllers, which answer them:
//
//	nonces          sign the nonce of a provider with the key of this cluster
//	Identities      write the kubeconfig of an Identity to a Secret, and renew its certificate
//	ResourceSlices  send requests for resources to the provider, and create an Identity and a VirtualNode from its answer
//
// The key of this cluster is in the Secret authentication-keys in the namespace of the installation. It is created when
// the controllers start, or when somebody has emptied the Secret. It is in every kubeconfig that is written, and never
// leaves the cluster. Whoever may write Secrets in a tenant namespace could otherwise have anything signed, so only texts
// in the form of a nonce are signed.
//
// A provider is not trusted: its certificates are used only if they are for the key and the user of this cluster, and
// only at the address of the Identity for its control plane, which an administrator of this cluster has accepted.
// Kubeconfigs are written only to Secrets that belong to their Identity.
//
// The controllers need the Secrets of tenant namespaces. They bind a role for them in each namespace in which there is
// an Identity, and have access to the Secrets of no other namespace. They are off by default: refractctl peer does not
// need them.
package identity
