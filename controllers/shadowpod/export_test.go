// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

// IsUnserved is isUnserved.
var IsUnserved = isUnserved
