// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"context"
	"path"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
)

func TestDefault(t *testing.T) {
	for kind, want := range map[string]string{
		"Pod":                                 "pod",
		"Service":                             "service",
		"EndpointSlice":                       "endpointslice",
		"EndpointSlice.discovery.k8s.io":      "endpointslice",
		"Ingress":                             "ingress",
		"Ingress.networking.k8s.io":           "ingress",
		"ConfigMap":                           "configmap",
		"Secret":                              "secret",
		"PersistentVolumeClaim":               "persistentvolumeclaim",
		"Event":                               "event",
		"NetworkPolicy":                       "networkpolicy",
		"NetworkPolicy.networking.k8s.io":     "networkpolicy",
		"PodDisruptionBudget":                 "poddisruptionbudget",
		"PodDisruptionBudget.policy":          "poddisruptionbudget",
		"NetworkPolicy.crd.projectcalico.org": "generic",
		"ServiceAccount":                      "generic",
		"":                                    "generic",
		"../pod/pod":                          "generic",
		"Widget.example.com":                  "generic",
		"Service.serving.knative.dev":         "generic",
		"Ingress.example.com":                 "generic",
		"Event.events.k8s.io":                 "generic",
		"EndpointSlice.":                      "generic",
	} {
		name, module := Default(kind)
		if name != want || !bytes.HasPrefix(module, []byte("\x00asm")) {
			t.Errorf("Default(%s) = %s and %d bytes, want the module %s", kind, name, len(module), want)
		}
	}
}

// TestEmbedded checks that every plugin in this folder is embedded under its name and can be loaded. Each plugin must
// declare its own kind, or, like the generic plugin, all kinds.
func TestEmbedded(t *testing.T) {
	sources, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	modules, err := filepath.Glob("*/*.wasm")
	if err != nil || len(modules) != len(sources) {
		t.Errorf("%d plugins have %d modules: %v", len(sources), len(modules), modules)
	}
	h, err := host.New(t.Context(), host.NewConfig())
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, h.Close(context.Background()))
	})
	for _, source := range sources {
		name := path.Dir(filepath.ToSlash(source))
		module, err := FS.ReadFile(name + "/" + name + ".wasm")
		if err != nil {
			t.Errorf("%s is not embedded: %v", name, err)
			continue
		}
		p, err := h.Load(t.Context(), name, module, host.PluginConfig{})
		if err != nil {
			t.Error(err)
			continue
		}
		kinds := p.Manifest().Kinds
		if len(kinds) != 1 || p.Manifest().Name != name {
			t.Errorf("%s calls itself %s and is for %v", name, p.Manifest().Name, kinds)
		}
		if got, _ := Default(kinds[0]); got != name {
			t.Errorf("Default(%s) = %q, want %s", kinds[0], got, name)
		}
	}
}
