// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/refract-project/refract/host"
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
	for range 2 { // the second time nothing happens
		if err := w.chains.AddKind(certificate); err != nil {
			t.Fatal(err)
		}
	}
	w.expect(certificate, "all@1 certs@2")
	w.expect("Service", "service@default all@1")

	got := w.apply(map[string][]byte{"certs.wasm": plugin(t, "4", certificate)})
	w.expect(certificate, "certs@4")
	if s := got["certs"]; !s.Running || !slices.Equal(s.Kinds, []string{certificate}) {
		t.Errorf("status %+v", s)
	}

	w.chains.RemoveKind(certificate)
	w.chains.RemoveKind("Widget.example.org") // which never came
	w.expect(certificate, "")
	w.expect("Service", "service@default")
	if s := w.apply(map[string][]byte{"certs.wasm": plugin(t, "4", certificate)})["certs"]; s.State != source.Loaded || s.Running {
		t.Errorf("status %+v", s)
	}
	if err := w.chains.AddKind(certificate); err != nil {
		t.Fatal(err)
	}
	w.expect(certificate, "certs@4")
}

// A plugin may be there, narrowed to a kind, before the kind is: its first object is bent.
func TestPluginWaitsForItsKind(t *testing.T) {
	w := newWorld(t)
	s := w.apply(map[string][]byte{"mine.wasm": plugin(t, "1", "*"), "mine.yaml": []byte("kinds: [" + certificate + "]")})["mine"]
	if s.State != source.Loaded || s.Running {
		t.Errorf("status %+v", s)
	}
	if err := w.chains.AddKind(certificate); err != nil {
		t.Fatal(err)
	}
	w.expect(certificate, "mine@1")
	w.expect("Service", "service@default")
}

// The default plugin for "*" is in the chains of kinds without another default plugin, and in no other.
func TestDefaultOfAllOthers(t *testing.T) {
	w := newWorldOf(t, "", fstest.MapFS{
		"service/service.wasm": {Data: plugin(t, "default", "Service")},
		"generic/generic.wasm": {Data: plugin(t, "default", "*")},
	})
	w.expect("Service", "service@default")
	w.expect("ConfigMap", "generic@default")
	if err := w.chains.AddKind(certificate); err != nil {
		t.Fatal(err)
	}
	w.expect(certificate, "generic@default")
	w.apply(map[string][]byte{
		"mine.wasm": plugin(t, "1", certificate), "mine.yaml": []byte("replaces: generic"),
		"also.wasm": plugin(t, "2", "*"),
	})
	w.expect(certificate, "also@2 mine@1")
	w.expect("ConfigMap", "generic@default also@2")
	w.expect("Service", "service@default also@2")
}

// Kinds, modules and calls come from different goroutines.
func TestKindsAndModulesAtOnce(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for _, kind := range []string{"A.example.org", "B.example.org", "C.example.org"} {
		wg.Go(func() {
			for range 20 {
				if err := w.chains.AddKind(kind); err != nil {
					t.Error(err)
				}
				_ = w.registry.Chain(kind, host.Outgoing)
				w.chains.RemoveKind(kind)
			}
			if err := w.chains.AddKind(kind); err != nil {
				t.Error(err)
			}
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
