// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package options defines the flags of the virtual kubelet: names, defaults, validation, and the clients that they
// configure. Flags of Liqo without effect here are accepted, and reported as such.
package options
