// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// IsProtocolKey reports whether a label or annotation has a meaning in the protocol between the clusters: by such keys objects are found, counted and
// restricted, so they are never left to others.
func IsProtocolKey(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return false
	}
	for _, ours := range []string{"liqo.io", "refract.io"} {
		if domain == ours || strings.HasSuffix(domain, "."+ours) {
			return true
		}
	}
	return false
}
