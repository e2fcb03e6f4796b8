// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package crds holds the CustomResourceDefinitions of every kind under api, generated from its Go types.
package crds

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed *.yaml
var files embed.FS

// FS returns the CRDs, one YAML file per kind, named GROUP_PLURAL.yaml.
func FS() fs.FS { return files }

// Manifests returns the YAML of every CRD in the order of the file names.
func Manifests() ([][]byte, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing embedded CRDs, %w", err)
	}
	manifests := make([][]byte, 0, len(names))
	for _, name := range names {
		manifest, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading embedded CRD %s, %w", name, err)
		}
		manifests = append(manifests, manifest)
	}
	return manifests, nil
}
