// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletapi serves the part of the kubelet's HTTPS API that a virtual node needs: container logs, exec,
// attach, port-forward, the pod lists, health, the resource statistics and the metrics of the virtual kubelet. All
// other requests, which make no sense for a virtual node, are refused with an explanation.
//
// A virtual node runs nothing itself, so nearly every request is proxied to the provider's API server:
//
//	kubectl ─▶ local API server ─▶ this server ─▶ provider's API server ─▶ its kubelet
//
// The request is translated once (kubelet path to API path, local namespace to the provider's); then bytes are
// copied. Streams are not terminated here: SPDY and WebSocket are passed through in every version that both API
// servers support, so exit codes, terminal sizes, the end of stdin and error messages arrive as the provider sent
// them.
//
// Callers are authenticated and authorized like in a kubelet: client certificates against the cluster's client CA or
// bearer tokens by TokenReview, then a SubjectAccessReview on the subresources of this Node. There is no anonymous
// access. Requests for a pod that is not bound to this node fail with "not found", even if the provider has a pod of
// the same name. A pod on the provider that was not created for the local pod is never accessed.
package kubeletapi
