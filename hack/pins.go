// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package hack lists for Go code the tools that hack/tools.sh builds, and their locations. The scripts and this
// package read the same pins.env, so a checkout finds the tools it was written for in a shared cache.
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

// Version returns the pinned version of a component ("kubernetes", "etcd", "kwok", "tinygo"), or "" for an unknown one.
func Version(component string) string {
	return pin(strings.ToUpper(component) + "_VERSION")
}

// ToolDir returns the cache folder of a component's files. It may not exist before `make tools`. The error is returned
// if neither REFRACT_CACHE nor the home folder is known.
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
