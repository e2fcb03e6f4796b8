// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"os"
	"syscall"
	"time"
)

// changeTime is when the content, or anything else about the file, was changed last.
func changeTime(info os.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return info.ModTime()
}
