// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package connection implements a connection to a provider's API server. The credentials can be replaced at any time.
//
// All clients are created from Connection.Config and share one transport. When the kubeconfig is renewed, Update
// replaces the credentials of all clients at once. No client is recreated, no informer loses its cache, and nothing is
// restarted.
package connection
