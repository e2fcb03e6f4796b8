// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package fieldmanager computes the field manager names of individual virtual nodes. All other field manager names are
// constants in package wire. The default plugins import package wire, so code is kept out of that package.
package fieldmanager

import (
	"crypto/sha256"
	"fmt"

	"github.com/refract-project/refract/api/wire"
)

// maxLength is the maximum length of a field manager's name in Kubernetes.
const maxLength = 128

// OfNode returns the field manager that a virtual node uses for its entries in lists shared by all virtual nodes. Each
// virtual node has its own field manager, so that it only writes and removes its own entries. A name that would be too
// long is shortened.
func OfNode(node string) string {
	name := wire.NodeFieldManagerPrefix + node
	if len(name) <= maxLength {
		return name
	}
	suffix := fmt.Sprintf("-%x", sha256.Sum256([]byte(node)))
	return name[:maxLength-len(suffix)] + suffix
}
