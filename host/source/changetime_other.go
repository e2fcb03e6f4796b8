// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package source

import (
	"os"
	"time"
)

// changeTime returns the modification time. It is used only for development, because virtual kubelets run on Linux.
func changeTime(info os.FileInfo) time.Time { return info.ModTime() }
