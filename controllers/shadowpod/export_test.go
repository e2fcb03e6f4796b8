// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

// IsUnserved exports isUnserved for tests.
var IsUnserved = isUnserved
