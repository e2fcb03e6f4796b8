// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"os"

	"github.com/refract-project/refract/test/support/testenv/internal/process"
)

// TempDir creates a folder for files of clusters, and returns a function that deletes it. If this process ends
// without calling remove, for any reason, a separate watchdog deletes the folder.
func TempDir(pattern string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp("", pattern); err != nil {
		return "", nil, err
	}
	watchdog, err := process.NewLauncher(dir)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() error {
		err := os.RemoveAll(dir)
		watchdog.Close()
		return err
	}, nil
}
