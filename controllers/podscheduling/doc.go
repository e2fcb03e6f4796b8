// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package podscheduling is the admission webhook that lets pods of offloaded namespaces run on virtual nodes, as
// configured in their NamespaceOffloading.
//
// The API server calls it only for pods that are created in a namespace with the label
// liqo.io/scheduling-enabled=true. The pod gets a toleration of the taint of virtual nodes and a required node
// affinity, so users need to write neither. The pod's own requirements stay in effect: its terms are combined with
// ours, so that a node must satisfy both.
//
// An invalid NamespaceOffloading does not block pods: they are admitted unchanged, with a warning that has the remedy.
// Only failures of the webhook itself are errors. The failure policy of the webhook configuration applies to them.
package podscheduling
