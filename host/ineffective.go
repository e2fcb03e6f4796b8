// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// ineffectiveWrites returns a warning for each entry of PluginConfig.Writes and PluginConfig.Capabilities that has no
// effect, because the manifest does not request it.
func (p *Plugin) ineffectiveWrites() (warnings []string) {
	for _, path := range p.writes {
		if !p.manifest.MayWrite(path) {
			warnings = append(warnings, fmt.Sprintf("writes: %s has no effect, the plugin declares %s", path, listOrNothing(p.manifest.Writes)))
		}
	}
	for _, c := range p.capabilities {
		if !slices.Contains(p.manifest.Capabilities, c) {
			warnings = append(warnings, fmt.Sprintf("capabilities: %s has no effect, the plugin does not declare it", c))
		}
	}
	return warnings
}

func listOrNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// pathsOverlap reports whether there can be an edit that is at or below both paths. It returns false if a path is
// invalid.
func pathsOverlap(a, b string) bool {
	if a == "*" || b == "*" {
		return true
	}
	x, errX := fieldpath.Parse(a)
	y, errY := fieldpath.Parse(b)
	if errX != nil || errY != nil {
		return false
	}
	for n := range min(len(x), len(y)) {
		if !keysOverlap(x[n].Key, y[n].Key) {
			return false
		}
	}
	return true
}

func keysOverlap(a, b string) bool {
	if a == "*" || b == "*" || a == b {
		return true
	}
	prefixA, manyA := strings.CutSuffix(a, "/*")
	prefixB, manyB := strings.CutSuffix(b, "/*")
	return manyA && strings.HasPrefix(b, prefixA+"/") || manyB && strings.HasPrefix(a, prefixB+"/")
}
