// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command refractctl installs Refract, joins clusters, offloads namespaces to them, shows their state, and tests and
// manages plugins.
package main

import (
	"os"

	"github.com/refract-project/refract/cmd/refractctl/cli"
)

func main() { cli.MainOf(os.Args[0]) }
