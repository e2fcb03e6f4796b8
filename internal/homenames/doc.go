// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package homenames resolves, for the pods that a consumer runs in this cluster, the DNS names that they have in the
// consumer's cluster.
//
// A Service web in the namespace shop of consumer rome is in the namespace shop-rome here. Its pods still look up
// web.shop.svc.cluster.local, because that name is in their configuration. A Resolver serves one consumer. It translates
// the namespace and the domain in the question, forwards the question to the DNS of this cluster, and translates the names
// in the answer back, also those in SRV, CNAME and PTR records. All answers come from this cluster, so that names resolve
// while the consumer's cluster is unreachable. Other questions and their answers are forwarded unchanged.
//
// The names of namespaces come from the NamespaceMap of the consumer, see Follow. There is a Resolver for each consumer,
// because a DNS query does not identify the pod that sends it.
package homenames
