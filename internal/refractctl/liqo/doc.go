// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package liqo runs Refract's virtual kubelet in place of Liqo's under Liqo's controllers, and can revert this.
//
// Liqo's webhook writes the whole Deployment of a virtual kubelet into its VirtualNode, and Liqo's controller keeps
// the Deployment in sync with the VirtualNode. So the virtual kubelet is replaced by changing the image in the
// VirtualNode. Refract's virtual kubelet needs permissions that Liqo's role lacks, such as to create TokenReviews,
// because it authenticates callers of logs and exec. Objects of Liqo are never deleted, and changes are recorded in
// annotations.
package liqo
