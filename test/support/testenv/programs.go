// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// BuildCommands builds programs of this module, named by their folders in cmd/, into dir. Only the first build after
// a change takes time: `go run`, unlike `go build`, caches linked programs, so BuildCommands uses `go run` to run cp
// with the path of the program.
func BuildCommands(ctx context.Context, dir string, commands ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
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
