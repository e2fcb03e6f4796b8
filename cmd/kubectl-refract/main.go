// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Kubectl-refract is refractctl under the name by which kubectl finds it:
// "kubectl refract".
package main

import "github.com/refract-project/refract/cmd/refractctl/cli"

func main() { cli.Main("kubectl refract") }
