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

// FS returns the CRDs of every installation, as one YAML file for each kind, with the name GROUP_PLURAL.yaml.
func FS() fs.FS { return files }

// Network returns the CRDs of the network between the clusters, as files like the files of FS. They are separate
// because a cluster that serves them must run a network module that maintains Configurations: without a Configuration,
// the addresses of a peer count as unknown.
func Network() fs.FS {
	network, err := fs.Sub(networkFiles, "network")
	if err != nil {
		panic(err) // the folder is embedded, so it can be opened
	}
	return network
}
