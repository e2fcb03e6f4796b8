// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package hack provides the versions and locations of the tools that hack/tools.sh builds. The scripts and this
// package read the same file pins.env, so that each checkout finds the matching versions of the tools in a cache that
// several checkouts share.
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

// Version returns the pinned version of a component ("kubernetes", "etcd", "kwok", "tinygo"), or "" if the component
// is not known.
func Version(component string) string {
	return pin(strings.ToUpper(component) + "_VERSION")
}

// ToolDir returns the cache folder with the files of a component. The folder might not exist before `make tools`.
// ToolDir returns an error if neither REFRACT_CACHE nor the home folder is known.
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
