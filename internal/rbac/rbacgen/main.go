// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command rbacgen writes the rules of each role for the Helm chart. Its argument is the directory of the files
// NAME.yaml.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/refract-project/refract/internal/rbac"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: rbacgen DIRECTORY")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "rbacgen:", err)
		os.Exit(1)
	}
}

func generate(dir string) error {
	for _, role := range rbac.Roles() {
		rules, err := rbac.RulesYAML(role)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, role.Name+".yaml"), rules, 0o644); err != nil {
			return fmt.Errorf("writing the rules of role %s, %w", role.Name, err)
		}
	}
	return nil
}
