// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pluginsource fetches the modules of plugins from registries and web servers, which it does not trust.
//
// Sizes are limited before and while something is read, also of what is decompressed. A server that sends nothing for StallTimeout has failed.
// Connections use TLS, except to registries that are configured as insecure. A redirect leads to https only: that of a web server to
// the same host, that of a blob of a registry to any host (registries store blobs elsewhere), without credentials. Nothing is tried twice: the caller
// does that, later.
//
// Errors are of type *Error, with a Reason for a condition.
package pluginsource
