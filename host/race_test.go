// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package host

// raced is true if the race detector is enabled. The detector slows down the code of the host but not the code of
// guests, so tests that compare these times are skipped.
const raced = true
