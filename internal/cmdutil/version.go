// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"fmt"
	"runtime/debug"
)

// Version returns the version of the main module, such as the version in `go install …@version`, followed by the commit
// if it is known, and by the Go release.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version, commit, modified := info.Main.Version, "", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = setting.Value[:min(12, len(setting.Value))]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = ", modified"
		}
	}
	if version == "" {
		version = "(devel)"
	}
	if commit == "" {
		return fmt.Sprintf("%s (%s)", version, info.GoVersion)
	}
	return fmt.Sprintf("%s (commit %s%s, %s)", version, commit, modified, info.GoVersion)
}
