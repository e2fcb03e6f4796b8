// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// checkVersion checks that the checkout is at the commit with the tag of the chart's version, and that the changelog
// has a section for this version.
func (r *release) checkVersion(ctx context.Context) error {
	changelog, err := os.ReadFile(filepath.Join(r.source, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !hasSection(string(changelog), r.version) {
		return fmt.Errorf("CHANGELOG.md has no section %q: name the section Unreleased so, with the date", "## "+r.version+" (YYYY-MM-DD)")
	}
	changes, err := r.runGit(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the checkout has changes: commit or remove them\n%s", changes)
	}
	tags, err := r.runGit(ctx, "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	if tag := "v" + r.version; !slices.Contains(strings.Fields(tags), tag) {
		return fmt.Errorf("HEAD does not have the tag %s of the chart's appVersion: run git tag --sign %s", tag, tag)
	}
	return nil
}

// hasSection reports whether the changelog has a dated section for the version.
func hasSection(changelog, version string) bool {
	return strings.Contains(changelog, "\n## "+version+" (2")
}

// runGit runs git in the checkout and returns its output.
func (r *release) runGit(ctx context.Context, args ...string) (string, error) {
	return commandOutput(ctx, r.source, nil, "git", args...)
}

// commandOutput runs a command and returns its standard output.
func commandOutput(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Env = dir, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("running %s %s, %w: %s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(stdout.String()), nil
}
