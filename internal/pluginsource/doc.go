// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pluginsource fetches the modules of plugins from untrusted registries and web servers.
//
// Sizes are limited before and during reads, and during decompression. A fetch fails if a server sends nothing for
// StallTimeout. Connections use TLS, except to registries that are configured as insecure. Redirects must lead to
// https. Web servers may redirect to the same host only. Registries may also redirect to other hosts, because many
// store their blobs there; credentials are not sent to these hosts. Failed fetches are not retried.
//
// Errors are of type *Error, with a Reason for a condition.
package pluginsource
