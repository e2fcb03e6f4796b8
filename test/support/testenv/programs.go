// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildCommands builds programs of this module, named by their folders in cmd/, into dir. Only the first build after
// a change takes time: `go run`, unlike `go build`, caches linked programs, so BuildCommands uses `go run` to run cp
// with the path of the program.
func BuildCommands(ctx context.Context, dir string, commands ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := dependOnSources(ctx); err != nil {
		return err
	}
	for _, command := range commands {
		build := exec.CommandContext(ctx, "go", "run", "-exec", fmt.Sprintf("cp -t %q", dir), "github.com/refract-project/refract/cmd/"+command)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s, %w: %s", command, err, out)
		}
	}
	return nil
}

// dependOnSources reads the folders with the sources of this module. `go test` records which folders a test reads, and
// does not reuse its result after a change there. Without this, it would reuse the result of a test although the
// programs that the test builds have changed.
func dependOnSources(ctx context.Context) error {
	root, err := ModuleRoot(ctx)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
}

// ModuleRoot returns the folder of go.mod in this checkout.
func ModuleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the checkout (run this from inside it), %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
