// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package liqo replaces Liqo's virtual kubelet by Refract's, under the control of Liqo's controllers, and can revert
// this.
//
// Liqo's webhook writes the whole Deployment of a virtual kubelet into its VirtualNode, and Liqo's controller keeps the
// Deployment in sync with the VirtualNode. Therefore changing the image in the VirtualNode replaces the virtual
// kubelet. Refract's virtual kubelet needs permissions that Liqo's role does not grant. For example, it creates
// TokenReviews to authenticate the callers of logs and exec. Liqo's objects are never deleted, and changes to them are
// recorded in annotations.
package liqo
