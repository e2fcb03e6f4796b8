// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package crds holds the CustomResourceDefinitions of every kind under api, generated from its Go types.
package crds

import (
	"embed"
	"io/fs"
)

//go:embed *.yaml
var files embed.FS

// FS returns the CRDs, one YAML file per kind, named GROUP_PLURAL.yaml.
func FS() fs.FS { return files }
