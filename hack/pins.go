// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package hack provides the versions of the tools that hack/tools.sh builds, and the folders that contain them. The
// scripts and this package read the versions from pins.env. The name of a tool's folder contains its version, so that
// checkouts that need different versions can share a cache.
package hack

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed pins.env
var pins string

// Version returns the pinned version of a component ("kubernetes", "etcd", "kwok", "tinygo"), or "" if there is no such
// component.
func Version(component string) string {
	return pin(strings.ToUpper(component) + "_VERSION")
}

// ToolDir returns the folder in the cache that contains the files of a component. The folder does not exist before
// `make tools` has built the component. ToolDir returns an error if REFRACT_CACHE is not set and the user has no cache
// folder.
func ToolDir(component string) (string, error) {
	cache := os.Getenv("REFRACT_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding the tools' cache (set REFRACT_CACHE), %w", err)
		}
		cache = filepath.Join(user, "refract")
	}
	recipe := pin(strings.ToUpper(component) + "_RECIPE")
	return filepath.Join(cache, "tools", fmt.Sprintf("%s-%s-r%s", component, Version(component), recipe)), nil
}

func pin(key string) string {
	for line := range strings.Lines(pins) {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
