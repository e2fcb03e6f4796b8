// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"testing"
)

func TestDefault(t *testing.T) {
	for kind, want := range map[string]string{
		"Pod":                            "pod",
		"Service":                        "service",
		"EndpointSlice":                  "endpointslice",
		"EndpointSlice.discovery.k8s.io": "endpointslice",
	} {
		name, module := Default(kind)
		if name != want || !bytes.HasPrefix(module, []byte("\x00asm")) {
			t.Errorf("Default(%s) = %s and %d bytes, want the module %s", kind, name, len(module), want)
		}
	}
	for _, kind := range []string{"ConfigMap", "", "../pod/pod", "Widget.example.com"} {
		if name, module := Default(kind); name != "" || module != nil {
			t.Errorf("Default(%s) = %s and %d bytes, want none", kind, name, len(module))
		}
	}
}
