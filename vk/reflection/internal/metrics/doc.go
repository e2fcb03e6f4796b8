// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics defines the metrics of reflection to one provider.
package metrics
