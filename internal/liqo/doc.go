// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package liqo has Refract's virtual kubelet run in the place of Liqo's, under Liqo's controllers, and takes that back.
//
// Liqo's webhook writes the whole Deployment of a virtual kubelet into its VirtualNode, and its controller keeps the Deployment as it is there.
// So a virtual kubelet is replaced by another image in the VirtualNode. Ours needs rights that Liqo's role lacks, such as to review tokens: it
// authenticates who asks for logs and shells. Nothing of Liqo's is deleted, and what is changed is noted beside it.
package liqo
