// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/refract-project/refract/sdk/plugintest"
)

const module = "networkpolicy.wasm"

func TestCases(t *testing.T) {
	plugintest.Run(t, module, "testdata", plugintest.Native(plugin))
}

func TestProperties(t *testing.T) {
	plugintest.Property(t, module, "testdata", 3000, plugintest.Native(plugin))
}

func FuzzPlugin(f *testing.F) {
	plugintest.Fuzz(f, module, "testdata", plugintest.Native(plugin))
}
