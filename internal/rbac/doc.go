// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package rbac defines the permissions of each process, with reasons.
//
// There are five identities. The virtual kubelet has one identity in its own cluster and another one on the
// provider, which it shares with the consumer's controller manager. The controller manager has one identity in its
// own cluster, which is the same for consumers and providers. The gateway of each peering has its own identity, and the agents of
// all nodes have one. The rules of the identities are data in kubelet.go, remote.go, controllermanager.go and gateway.go, each
// with its reason. The roles of the Helm chart are generated from them (the
// command rbacgen writes the files that the templates include), and tests, the demo and the benchmarks install the
// same objects with Install.
//
// Roles that exist in Liqo have the same names, such as "liqo-virtual-kubelet-remote", so that a provider of either
// implementation can bind them. They grant less than Liqo's: outside offloaded namespaces, they grant access only to
// the Secret with the kubeconfig of the provider and the Secret with the CA of our webhook's certificates. They grant
// no service account tokens, and no nodes except the virtual kubelet's own.
package rbac
