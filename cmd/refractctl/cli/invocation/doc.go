// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package invocation has what all commands of refractctl share: the selection of their cluster and of a second one, flags
// with their completion and checks, formats of output and results, exit codes, waiting, and interruption.
//
// The commands are in packages for each topic. They use this package, and it knows none of them.
package invocation
