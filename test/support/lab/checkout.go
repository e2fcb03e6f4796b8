// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// moduleRoot returns the folder of go.mod in this checkout.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the checkout (run this from inside it), %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ReadModule reads the module of a plugin from this checkout. path is relative to the root.
func (l *Lab) ReadModule(path string) ([]byte, error) {
	root, err := moduleRoot(context.Background())
	if err != nil {
		return nil, err
	}
	module, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, fmt.Errorf("reading the plugin (`make plugins` builds it), %w", err)
	}
	return module, nil
}
