// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package fieldmanager builds the names of the field managers of individual virtual nodes. All other field manager
// names are constants in package wire. Default plugins import wire, so code that computes names is kept out of it.
package fieldmanager

import (
	"crypto/sha256"
	"fmt"

	"github.com/refract-project/refract/api/wire"
)

// maxLength is the maximum length of the name of a field manager in Kubernetes.
const maxLength = 128

// OfNode returns the field manager of the entries that a virtual node has in lists that all virtual nodes share. Each
// virtual node has its own field manager, so that it writes and removes its own entries only. A name that is too long
// for a field manager is shortened.
func OfNode(node string) string {
	name := wire.NodeFieldManagerPrefix + node
	if len(name) <= maxLength {
		return name
	}
	suffix := fmt.Sprintf("-%x", sha256.Sum256([]byte(node)))
	return name[:maxLength-len(suffix)] + suffix
}
