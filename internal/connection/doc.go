// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package connection is the connection to a provider's API server, whose credentials can change at any time.
//
// All clients are created from Connection.Config and share one transport. When the kubeconfig is renewed
// (certificates of a peering are valid for months, tokens for hours), Update replaces the credentials of all clients
// at once: no client is recreated, no informer loses its cache, and nothing restarts.
package connection
