// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"os"
	"syscall"
	"time"
)

// changeTime returns the time of the last change to the file's content or metadata.
func changeTime(info os.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return info.ModTime()
}
