// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package options defines the flags of the virtual kubelet, with their defaults and validation, and the clients that
// the flags configure. Flags of Liqo that have no effect in Refract are accepted, and cause a warning in the log.
package options
