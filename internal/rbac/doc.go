// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package rbac defines the permissions of each process, with reasons.
//
// There are three identities. The virtual kubelet has one in its own cluster and one on the provider, which the
// consumer's controller manager shares. The controller manager has one in its own cluster, the same for consumers and
// providers. Their rules are data in kubelet.go, remote.go and controllermanager.go, each with its reason. The roles
// of the Helm chart are generated from them (the command rbacgen writes the files that the templates include), and
// tests, demo and benchmarks install the same objects with Install.
//
// Roles that exist in Liqo have its names, such as "liqo-virtual-kubelet-remote", so that a provider of either
// implementation binds them alike. They grant less: outside offloaded namespaces only the Secret with the kubeconfig
// of the provider and the Secret with the CA of our webhook's certificates, no token of any service account, and no
// node except the kubelet's own.
package rbac
