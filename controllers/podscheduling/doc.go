// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package podscheduling is the admission webhook that lets pods in offloaded namespaces run on virtual nodes, according
// to the NamespaceOffloading.
//
// The API server calls the webhook only for pods in namespaces with the label liqo.io/scheduling-enabled=true. The pod
// gets a toleration of the taint of virtual nodes and a required node affinity, so users do not have to write them. The
// pod's own requirements remain in effect: the webhook combines its terms with the pod's terms, and a node must match
// both.
//
// An invalid NamespaceOffloading does not block pods: they are admitted unchanged, with a warning that contains the
// remedy. Only failures of the webhook itself are errors, to which the failure policy of the webhook configuration
// applies.
package podscheduling
