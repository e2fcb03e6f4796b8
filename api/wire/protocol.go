// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// IsProtocolKey reports whether a label or annotation is part of the protocol between the clusters. Objects are
// found, counted and restricted by such keys, so other clients must not control them.
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
