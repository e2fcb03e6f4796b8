// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import "slices"

// MayWrite reports whether the manifest permits any edit at or below a path of PluginConfig.Writes. Otherwise the path
// has no effect.
func (m *Manifest) MayWrite(path string) bool {
	return slices.ContainsFunc(m.Writes, func(declared string) bool { return pathsOverlap(path, declared) })
}
