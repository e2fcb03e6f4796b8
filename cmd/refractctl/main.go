// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command refractctl joins clusters, offloads namespaces to them, shows the offloaded objects, and tests plugins.
package main

import (
	"os"

	"github.com/refract-project/refract/cmd/refractctl/cli"
)

func main() { cli.MainOf(os.Args[0]) }
