// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package host

// raced: the race detector slows down the host's code several times, and that of the guests not at all. What compares the two
// is not to be measured with it.
const raced = true
