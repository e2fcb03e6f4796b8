// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
)

const certificate = "Certificate.cert-manager.io"

func TestKindsComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.apply(map[string][]byte{
		"all.wasm":   plugin(t, "1", "*"),
		"certs.wasm": plugin(t, "2", certificate),
		"other.wasm": plugin(t, "3", "Certificate.example.org"),
	})
	w.expect(certificate, "")
	// The second call must have no effect.
	for range 2 {
		require.NoError(t, w.chains.AddKind(certificate))
	}
	w.expect(certificate, "all@1 certs@2")
	w.expect("Service", "service@default all@1")

	got := w.apply(map[string][]byte{"certs.wasm": plugin(t, "4", certificate)})
	w.expect(certificate, "certs@4")
	if s := got["certs"]; !s.Running || !slices.Equal(s.Kinds, []string{certificate}) {
		t.Errorf("status %+v", s)
	}

	w.chains.RemoveKind(certificate)
	// This kind was never added, so the call must change nothing.
	w.chains.RemoveKind("Widget.example.org")
	w.expect(certificate, "")
	w.expect("Service", "service@default")
	if s := w.apply(map[string][]byte{"certs.wasm": plugin(t, "4", certificate)})["certs"]; s.State != source.Loaded || s.Running {
		t.Errorf("status %+v", s)
	}
	require.NoError(t, w.chains.AddKind(certificate))
	w.expect(certificate, "certs@4")
}

// TestPluginWaitsForItsKind checks that a plugin that was applied before its kind was added mutates even the first
// object of the kind.
func TestPluginWaitsForItsKind(t *testing.T) {
	w := newWorld(t)
	s := w.apply(map[string][]byte{"mine.wasm": plugin(t, "1", "*"), "mine.yaml": []byte("kinds: [" + certificate + "]")})["mine"]
	if s.State != source.Loaded || s.Running {
		t.Errorf("status %+v", s)
	}
	require.NoError(t, w.chains.AddKind(certificate))
	w.expect(certificate, "mine@1")
	w.expect("Service", "service@default")
}

// TestDefaultOfAllOthers checks that the default plugin for "*" is in the chains of exactly those kinds that have no
// other default plugin.
func TestDefaultOfAllOthers(t *testing.T) {
	w := newWorldOf(t, "", fstest.MapFS{
		"service/service.wasm": {Data: plugin(t, "default", "Service")},
		"generic/generic.wasm": {Data: plugin(t, "default", "*")},
	})
	w.expect("Service", "service@default")
	w.expect("ConfigMap", "generic@default")
	require.NoError(t, w.chains.AddKind(certificate))
	w.expect(certificate, "generic@default")
	w.apply(map[string][]byte{
		"mine.wasm": plugin(t, "1", certificate), "mine.yaml": []byte("replaces: generic"),
		"also.wasm": plugin(t, "2", "*"),
	})
	w.expect(certificate, "also@2 mine@1")
	w.expect("ConfigMap", "generic@default also@2")
	w.expect("Service", "service@default also@2")
}

// TestKindsOfOtherGroups checks that kinds of the same name in the core group and in another API group are different
// kinds.
func TestKindsOfOtherGroups(t *testing.T) {
	w := newWorldOf(t, "", fstest.MapFS{
		"service/service.wasm": {Data: plugin(t, "default", "Service")},
		"secret/secret.wasm":   {Data: plugin(t, "default", "Secret")},
		"ingress/ingress.wasm": {Data: plugin(t, "default", "Ingress.networking.k8s.io")},
		"generic/generic.wasm": {Data: plugin(t, "default", "*")},
	})
	w.apply(map[string][]byte{
		"bare.wasm":    plugin(t, "1", "Service", "Ingress"),
		"options.wasm": plugin(t, "2", "*"), "options.yaml": []byte("kinds: [Service]"),
	})
	for _, kind := range []string{"Service.serving.knative.dev", "Secret.example.com", "Ingress.example.com", "Pod.example.com", "Secret"} {
		require.NoError(t, w.chains.AddKind(kind))
	}
	w.expect("Service.serving.knative.dev", "generic@default")
	w.expect("Secret.example.com", "generic@default")
	w.expect("Ingress.example.com", "generic@default")
	w.expect("Pod.example.com", "generic@default")
	w.expect("Service", "service@default bare@1 options@2")
	w.expect("Ingress.networking.k8s.io", "ingress@default bare@1")
}

// TestSecretsAreNamed checks that "*" does not include Secrets: a plugin runs on Secrets only if its manifest or its
// options name them.
func TestSecretsAreNamed(t *testing.T) {
	w := newWorldOf(t, "", fstest.MapFS{"secret/secret.wasm": {Data: plugin(t, "default", "Secret")}})
	require.NoError(t, w.chains.AddKind("Secret"))
	w.apply(map[string][]byte{
		"all.wasm":   plugin(t, "1", "*"),
		"named.wasm": plugin(t, "2", "*", "Secret"),
		"told.wasm":  plugin(t, "3", "*"), "told.yaml": []byte("kinds: [Secret]"),
	})
	w.expect("Secret", "secret@default named@2 told@3")
	w.expect("ConfigMap", "all@1 named@2")
}

// TestPodSpecsOfAKind checks that the guard protects the pod specs at the paths that were passed to AddKind for the
// kind, and that a malformed path does not change the guard.
func TestPodSpecsOfAKind(t *testing.T) {
	w := newWorld(t)
	on := func() bool {
		doc := document.New()
		doc.Reset(map[string]any{"spec": map[string]any{"template": map[string]any{"hostPID": true}}})
		_, err := w.registry.Run(t.Context(), certificate, host.Outgoing, doc, &host.Env{})
		require.NoError(t, err)
		v, _ := doc.Root().At("spec.template.hostPID")
		return v.Exists()
	}
	for _, c := range []struct {
		specs []string
		want  bool
	}{{nil, true}, {[]string{"spec.template"}, false}, {[]string{"spec.other"}, true}} {
		require.NoError(t, w.chains.AddKind(certificate, c.specs...))
		if got := on(); got != c.want {
			t.Errorf("with %q it is on: %t", c.specs, got)
		}
	}
	if err := w.chains.AddKind(certificate, "[broken"); err == nil {
		t.Error("a malformed path is taken")
	}
	if !on() {
		t.Error("the guard of before is gone")
	}
}

// TestKindsAndModulesAtOnce checks that the chains of all kinds have the last version of a plugin after the kinds were
// added and removed while versions of the plugin were applied concurrently.
func TestKindsAndModulesAtOnce(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for _, kind := range []string{"A.example.org", "B.example.org", "C.example.org"} {
		wg.Go(func() {
			for range 20 {
				assert.NoError(t, w.chains.AddKind(kind))
				_ = w.registry.Chain(kind, host.Outgoing)
				w.chains.RemoveKind(kind)
			}
			assert.NoError(t, w.chains.AddKind(kind))
		})
	}
	one, other := source.Module{Name: "x", Wasm: plugin(t, "1", "*")}, source.Module{Name: "x", Wasm: plugin(t, "2", "*")}
	for range 5 {
		w.chains.Apply(context.Background(), []source.Module{one})
		w.chains.Apply(context.Background(), []source.Module{other})
	}
	wg.Wait()
	for _, kind := range []string{"A.example.org", "B.example.org", "C.example.org"} {
		w.expect(kind, "x@2")
	}
}
