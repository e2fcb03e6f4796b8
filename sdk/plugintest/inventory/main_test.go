// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/refract-project/refract/sdk/plugintest"
)

func TestCases(t *testing.T) {
	plugintest.Run(t, "inventory.wasm", "testdata", plugintest.Native(plugin))
}
