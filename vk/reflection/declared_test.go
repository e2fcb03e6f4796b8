// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/plugins"
	"github.com/refract-project/refract/test/support/wattest"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// Bodies of the outgoing hook in the modules of these tests.
const (
	// setsLabel sets the label "by". %s is its value, which has two characters.
	setsLabel = `(data (i32.const 300) "%s")
		(func (export "outgoing") (result i32)
		  (call $set (i32.const 1) (i32.const 0) (i32.const 18) (i32.const 300) (i32.const 2)) (i32.const 0))`
	// failsWhereAsked fails for objects with the label do: fail.
	failsWhereAsked = `(func (export "outgoing") (result i32)
		  (if (i32.eq (i32.const 1) (call $is (i32.const 1) (i32.const 100) (i32.const 18) (i32.const 150) (i32.const 4)))
		    (then (call $fail (i32.const 150) (i32.const 4)) (return (i32.const 1))))
		  (i32.const 0))`
	skipsAll = `(func (export "outgoing") (result i32) (call $skip (i32.const 150) (i32.const 4)) (i32.const 0))`
	// alternates sets the label "by" to a and b in turn.
	alternates = `(global $n (mut i32) (i32.const 0))
		(func (export "outgoing") (result i32)
		  (global.set $n (i32.xor (global.get $n) (i32.const 1)))
		  (i32.store8 (i32.const 400) (i32.add (i32.const 97) (global.get $n)))
		  (call $set (i32.const 1) (i32.const 0) (i32.const 18) (i32.const 400) (i32.const 1)) (i32.const 0))`
	// setsDNS sets a field that is immutable in a running pod.
	setsDNS = `(data (i32.const 500) "spec.dnsPolicy") (data (i32.const 530) "Default")
		(func (export "outgoing") (result i32)
		  (call $set (i32.const 1) (i32.const 500) (i32.const 14) (i32.const 530) (i32.const 7)) (i32.const 0))`
	// setsClusterIP sets a field that the default plugin for Services removes.
	setsClusterIP = `(data (i32.const 500) "spec.clusterIP") (data (i32.const 530) "10.9.9.9")
		(func (export "outgoing") (result i32)
		  (call $set (i32.const 1) (i32.const 500) (i32.const 14) (i32.const 530) (i32.const 8)) (i32.const 0))`
)

// module assembles a plugin module for Services, ConfigMaps and pods.
func module(t *testing.T, version, body string) []byte {
	t.Helper()
	wasm, err := wattest.Assemble(wattest.Plugin(fmt.Sprintf(`{"name":"team","version":%q,"kinds":["Service","ConfigMap","Pod"],"hooks":["outgoing"],"writes":["metadata.labels","spec"],"capabilities":["skip"]}`, version),
		`(import "refract" "set_string" (func $set (param i32 i32 i32 i32 i32)))
		 (import "refract" "string_eq" (func $is (param i32 i32 i32 i32 i32) (result i32)))
		 (import "refract" "skip" (func $skip (param i32 i32)))
		 (import "refract" "fail" (func $fail (param i32 i32)))`,
		`(data (i32.const 0) "metadata.labels.by") (data (i32.const 100) "metadata.labels.do") (data (i32.const 150) "fail")`+body))
	require.NoError(t, err)
	return wasm
}

// declaredPlugin returns a declaration of a plugin.
func declaredPlugin(name, revision string, wasm []byte) source.Declared {
	return source.Declared{Name: name, Revision: revision, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(wasm)),
		Read: func(context.Context) ([]byte, error) { return wasm, nil }}
}

// declaredLab is a lab whose chains contain the default plugins and declared plugins.
type declaredLab struct {
	*lab
	chains *source.Chains
}

func newDeclaredLab(t *testing.T, change ...func(*reflection.Options)) *declaredLab {
	t.Helper()
	h := reflectiontest.Must(host.New(t.Context(), host.NewConfig()))(t)
	registry := host.NewRegistry(nil)
	l := &declaredLab{}
	l.chains = reflectiontest.Must(source.NewChains(t.Context(), source.ChainsConfig{Host: h, Registry: registry,
		Kinds: []string{reflection.PodKind, reflection.ServiceKind, reflection.ConfigMapKind}, Defaults: reflectiontest.Must(source.ReadFS(plugins.FS))(t)}))(t)
	t.Cleanup(func() {
		_ = l.chains.Close(context.Background())
		_ = h.Close(context.Background())
	})
	l.lab = newLab(t, append([]func(*reflection.Options){func(o *reflection.Options) {
		o.Registry, o.Kinds = registry, reflectiontest.Kinds(reflection.PodKind, reflection.ServiceKind, reflection.ConfigMapKind)
	}}, change...)...)
	return l
}

// declare replaces the declared plugins.
func (l *declaredLab) declare(all ...source.Declared) {
	l.Helper()
	for _, s := range l.chains.Declare(l.Context(), all) {
		require.NoError(l, s.Err)
	}
}

// candidate returns the plugin "team" as a candidate. Its next chains contain the given declared plugins.
func (l *declaredLab) candidate(all ...source.Declared) reflection.PluginCandidate {
	l.Helper()
	next, statuses, err := l.chains.NewCandidate(l.Context(), all)
	require.NoError(l, err)
	for _, s := range statuses {
		require.NoError(l, s.Err)
	}
	l.Cleanup(func() { next.Close(context.Background()) })
	c := reflection.PluginCandidate{Plugin: "team", Against: "team-1", Declared: []string{"metadata.labels.by"}, Next: next.Registry()}
	for _, key := range next.Changed() {
		c.Kinds = append(c.Kinds, key.Kind)
	}
	return c
}

// reevaluated is the number of ConfigMaps that TestRevisionWithoutDifferenceWritesNothing evaluates again. The figure
// in RATIONALE.md was measured with 10,000.
var reevaluated = flag.Int("reevaluated", 10, "ConfigMaps in TestRevisionWithoutDifferenceWritesNothing")

// TestRevisionWithoutDifferenceWritesNothing checks that all objects are evaluated again after a plugin is replaced by
// another revision, but that only objects with other results are written. The first new revision has the same results
// as the active one, and the second has other results.
func TestRevisionWithoutDifferenceWritesNothing(t *testing.T) {
	t.Parallel()
	l := newDeclaredLab(t)
	l.declare(declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1"))))
	maps := *reevaluated
	for i := range maps {
		l.labelled(fmt.Sprintf("map-%d", i), "do: pass")
	}
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Start()
	l.settled(maps + 1) // the ConfigMaps and the root CA
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	// promote replaces the plugin, and waits until all objects were evaluated again and a later change by a user was
	// reflected. written returns the writes since the replacement.
	promote := func(revision, label, change string, least int) (written func() (here, there []string)) {
		before := [2]int{len(l.Local.Writes(t)), len(l.Remote.Writes(t))}
		evaluated := [2]uint64{l.Manager.Evaluated(reflection.ConfigMapKind), l.Manager.Evaluated(reflection.ServiceKind)}
		l.declare(declaredPlugin("team", "team-"+revision, module(t, revision, fmt.Sprintf(setsLabel, label))))
		l.Eventually(func() error {
			if m, s := l.Manager.Evaluated(reflection.ConfigMapKind)-evaluated[0], l.Manager.Evaluated(reflection.ServiceKind)-evaluated[1]; m < uint64(least) || s < 1 {
				return fmt.Errorf("%d ConfigMaps and %d Services were evaluated again", m, s)
			}
			return nil
		})
		l.labelled(change, "do: pass")
		l.Present(l.Remote, "ConfigMap", l.RemoteNS, change)
		return func() (here, there []string) { return l.Local.Writes(t)[before[0]:], l.Remote.Writes(t)[before[1]:] }
	}
	here, there := promote("2", "v1", "first", maps+1)()
	require.Empty(t, here)
	require.Equal(t, []string{"patch configmaps first"}, there)

	written := promote("3", "v2", "second", maps+2)
	l.Eventually(func() error {
		if here, there = written(); len(there) != maps+4 { // the ConfigMaps, the root CA, two changes and the Service
			return fmt.Errorf("there were %d writes, the last ones %v", len(there), there[max(0, len(there)-20):])
		}
		return nil
	})
	require.Empty(t, here)
}

// namespaceSelection is a selector that selects all objects or none. It stands for a selector that depends on the
// labels of the namespace.
type namespaceSelection struct{ selects atomic.Bool }

func (s *namespaceSelection) Selects(*host.Env) (bool, error) { return s.selects.Load(), nil }

// TestChangedLabelsOfNamespacesReachPods checks that when the labels of a namespace change, so that a plugin begins or
// ceases to select its objects, all copies are updated, even the copy of a pod that has not changed.
func TestChangedLabelsOfNamespacesReachPods(t *testing.T) {
	t.Parallel()
	selected := &namespaceSelection{}
	team := declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1")))
	team.Selector = selected
	l := newDeclaredLab(t)
	l.declare(team)
	l.labelled("map", "do: pass")
	l.Pod("web")
	l.Start()
	labels := func(by string) {
		t.Helper()
		for kind, name := range map[string]string{"ConfigMap": "map", "ShadowPod": "web"} {
			l.Present(l.Remote, kind, l.RemoteNS, name, reflectiontest.Field("metadata.labels/by", by))
		}
	}
	labels("")
	for _, by := range []string{"v1", ""} {
		// The pod is evaluated once more before the change, so that its copy is known to be up to date.
		evaluated := l.Manager.Evaluated(reflection.PodKind)
		l.Manager.EnqueueAll(reflection.PodKind)
		l.Eventually(func() error {
			if waiting, _ := l.Manager.Queued(); waiting > 0 || l.Manager.Evaluated(reflection.PodKind) == evaluated {
				return errors.New("the pod is not evaluated")
			}
			return nil
		})
		selected.selects.Store(by != "")
		l.Manager.EnqueueNamespace(l.Namespace)
		labels(by)
	}
}
