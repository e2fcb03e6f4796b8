// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package podscheduling is the admission webhook that lets pods of offloaded namespaces run on virtual nodes, as
// configured in their NamespaceOffloading.
//
// The API server calls the webhook only for pods that are created in a namespace with the label
// liqo.io/scheduling-enabled=true. The pod gets a toleration of the taint of virtual nodes and a required node
// affinity, so users do not have to write them. The pod's own requirements stay in effect: the webhook combines its
// terms with the pod's terms, so that a node must satisfy both.
//
// An invalid NamespaceOffloading does not block pods: they are admitted unchanged, with a warning that contains the
// remedy. Only failures of the webhook itself are errors. The failure policy of the webhook configuration applies to
// them.
package podscheduling
