// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package rbac is the one place that says what each of our processes may do, and why.
//
// Three identities exist. The virtual kubelet has one in its own cluster and
// one in the provider's, which the consumer's controller manager shares; the
// controller manager has one in its own cluster, the same for consumers and
// providers. Their rules stand in kubelet.go, remote.go and
// controllermanager.go as data, each with its reason. From them come the roles
// of the Helm chart (the command rbacgen writes the files that the templates
// include) and the objects that tests, demo and benchmarks install with
// Install: what is tested is what is shipped.
//
// Roles that exist in Liqo bear its names, "liqo-virtual-kubelet-remote" for
// one, so that a provider of either implementation binds them alike. They
// grant less: outside offloaded namespaces no Secret but the one with the
// kubeconfig of the provider and the one with the authority of our webhook's
// certificates, and no token of any service account; no node but the kubelet's own.
package rbac
