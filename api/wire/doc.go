// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire is the vocabulary that consumer and provider, and Refract and Liqo, share on the API objects themselves.
//
// The CRD types say what the objects of our own groups look like. Everything
// else that two clusters agree on is a key or a value on somebody else's
// object: the label that says who owns a Service, the taint of a virtual node,
// the annotation with which a user excludes a Secret. Those keys stand
// here once, under the names that users know from Liqo; code, plugins and
// tests take them from here.
//
// The files follow the objects that carry the words: node.go for virtual
// nodes, reflection.go for what crosses the boundary, pod.go and service.go
// for what users write on their objects, storage.go for what Kubernetes itself
// writes on claims, namespace.go for the pairing of
// namespaces and the replication of our own resources, events.go for reasons.
package wire
