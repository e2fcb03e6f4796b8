// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package connection is the way to a provider's API server, whose credentials
// change while it is in use.
//
// All clients are made from Connection.Config and share one transport. When
// the kubeconfig is renewed (certificates of a peering live for months, tokens
// for hours), Update puts the new credentials underneath all of them at once:
// no client is made again, no informer loses its cache, nothing restarts.
package connection
