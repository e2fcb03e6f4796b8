// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package charts embeds the Helm chart, which refractctl installs.
package charts

import "embed"

// Refract is the chart, in the folder "refract".
//
//go:embed all:refract
var Refract embed.FS
