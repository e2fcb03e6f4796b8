// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/refract-project/refract/sdk/plugintest"
)

const module = "pod.wasm"

func TestCases(t *testing.T) {
	plugintest.Run(t, module, "testdata", plugintest.Native(plugin))
}

func TestProperties(t *testing.T) {
	plugintest.Property(t, module, "testdata", 3000, plugintest.Native(plugin))
}

func FuzzPlugin(f *testing.F) {
	plugintest.Fuzz(f, module, "testdata", plugintest.Native(plugin))
}

func TestTokenKey(t *testing.T) {
	for _, path := range []string{"", "token", "a/much/longer/path/whose/length/is/just/about/the/size/of/one-block", "ü"} {
		sum := sha256.Sum256([]byte(path))
		want := "volume-" + hex.EncodeToString(sum[:3])
		if got := tokenKey("volume", path); got != want {
			t.Errorf("tokenKey(volume, %q) = %s, want %s", path, got, want)
		}
	}
	for length := range 200 {
		message := strings.Repeat("x", length)
		sum := sha256.Sum256([]byte(message))
		if got := sha256Prefix(message); !bytes.Equal(got[:], sum[:4]) {
			t.Errorf("sha256Prefix of %d bytes = %x, want %x", length, got, sum[:4])
		}
	}
}
