// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package options has the flags of the virtual kubelet: what they are called, what they default to, what makes no valid
// combination, and the clients that they describe. Flags of Liqo's that have no effect here are accepted, and said to have none.
package options
