// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package crds embeds the CustomResourceDefinitions of all kinds below api. They are generated from the Go types.
package crds

import (
	"embed"
	"io/fs"
)

//go:embed *.yaml
var files embed.FS

//go:embed network/*.yaml
var networkFiles embed.FS

// FS returns the CRDs of every installation. There is one YAML file for each kind, named GROUP_PLURAL.yaml.
func FS() fs.FS { return files }

// Network returns the CRDs of the network between the clusters, in files with such names. They are in a separate folder
// because a cluster that serves them must have a network module that maintains its Configurations: without a
// Configuration, the addresses of a peer count as unknown.
func Network() fs.FS {
	network, err := fs.Sub(networkFiles, "network")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return network
}
