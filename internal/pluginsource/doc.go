// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pluginsource fetches the modules of plugins from registries and web servers, which it does not trust.
//
// Sizes are limited before and during reads, and during decompression. A fetch fails if a server sends little or nothing for StallTimeout, or if all
// requests for a module take longer than the Budget. Connections use TLS, except to registries that are configured as insecure. Redirects must lead to
// https: web servers may redirect to the same host and folder only, registries also to other hosts, where many store their blobs, without credentials.
// The caller retries, later.
//
// Errors are of type *Error, with a Reason for a condition.
package pluginsource
