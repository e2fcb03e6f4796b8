// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package host

const raced = false
