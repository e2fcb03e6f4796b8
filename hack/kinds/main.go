// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Kinds writes the list of kinds that are reflected by default to files that cannot import the list, in the given
// checkout:
//
//	go run ./hack/kinds .
//
// The list is reflection.DefaultKinds. Existing values of the chart are not changed.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/refract-project/refract/vk/reflection"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kinds FOLDER, the root of the checkout")
		os.Exit(2)
	}
	if err := write(os.Args[1], reflection.DefaultKinds()); err != nil {
		fmt.Fprintln(os.Stderr, "kinds:", err)
		os.Exit(1)
	}
}

// write updates the list in each place. It returns an error if a file does not contain the list in the expected form.
func write(root string, kinds []reflection.Kind) error {
	for _, p := range places {
		path := filepath.Join(root, p.path)
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		updated, err := p.update(string(old), kinds)
		if err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
		if updated == string(old) {
			continue
		}
		if err := os.WriteFile(path, []byte(updated), 0o644); err != nil {
			return err
		}
	}
	return nil
}
