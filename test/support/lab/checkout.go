// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/refract-project/refract/test/support/testenv"
)

// ReadModule reads the module of a plugin in this checkout. path is relative to the root of the checkout.
func (l *Lab) ReadModule(path string) ([]byte, error) {
	root, err := testenv.ModuleRoot(context.Background())
	if err != nil {
		return nil, err
	}
	module, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, fmt.Errorf("reading the plugin (`make plugins` builds it), %w", err)
	}
	return module, nil
}
