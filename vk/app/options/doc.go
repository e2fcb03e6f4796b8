// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package options defines the flags of the virtual kubelet: names, defaults, validation, and the clients that they
// configure. Flags of Liqo that have no effect in Refract are accepted, and a warning is logged.
package options
