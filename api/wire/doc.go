// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire defines the keys and values on API objects that are shared between consumer and provider, and between
// Refract and Liqo.
//
// The CRD types define the objects of Refract's and Liqo's API groups. All other conventions between two clusters are
// keys or values on other objects: the label with the origin of a Service, the taint of a virtual node, the
// annotation with which a user excludes a Secret. They are defined only here, with the names that Liqo uses. Code,
// plugins and tests use these constants.
//
// The files are named after the objects, such as node.go for virtual nodes, reflection.go for reflected objects, pod.go
// and service.go for annotations of users, storage.go for annotations that Kubernetes writes to claims, namespace.go
// for the mapping of namespaces and the replication of custom resources, and events.go for reasons.
package wire
