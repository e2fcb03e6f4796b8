// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/refract-project/refract/sdk/plugintest"
)

const module = "memory-limits.wasm"

func TestCases(t *testing.T) {
	plugintest.Run(t, module, "testdata", plugintest.Native(plugin))
}

func TestProperties(t *testing.T) {
	plugintest.Property(t, module, "testdata", 300, plugintest.Native(plugin))
}
