// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package podscheduling is the admission webhook that lets the pods of offloaded
// namespaces onto virtual nodes, as their NamespaceOffloading says.
//
// The API server asks it about every pod that is created in a namespace with
// the label liqo.io/scheduling-enabled=true, and about no other. The pod gets a
// toleration of the taint of virtual nodes and a required node affinity; users
// write neither. What the pod asks for itself stays in force: its own terms are
// combined with ours, so that a node must satisfy both.
//
// A namespace that cannot be understood does not stop its pods: they are
// admitted as they are, with a warning that says what to do. Only trouble of
// the webhook itself is an error, and the failure policy of the webhook
// configuration decides what comes of it.
package podscheduling
