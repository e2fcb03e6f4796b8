// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire defines the keys and values that consumer and provider, and Refract and Liqo, share on API objects.
//
// The CRD types define the objects of our own groups. All other conventions between two clusters are keys or values
// on other objects: the label with the owner of a Service, the taint of a virtual node, the annotation with which a
// user excludes a Secret. They are defined only here, with Liqo's names; code, plugins and tests use these constants.
//
// The files are named after the objects: node.go for virtual nodes, reflection.go for reflected objects, pod.go and
// service.go for annotations of users, storage.go for what Kubernetes writes on claims, namespace.go for the mapping
// of namespaces and the replication of our own resources, events.go for reasons.
package wire
