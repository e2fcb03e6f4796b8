// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Kubectl_complete-refract is refractctl under the name by which kubectl asks
// it how arguments of "kubectl refract" go on.
package main

import "github.com/refract-project/refract/cmd/refractctl/cli"

func main() { cli.Complete() }
