// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package host

// raced is true if the race detector is on. It slows down the host's code several times, and guest code not at all, so
// tests that compare their times are skipped.
const raced = true
