// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// labelled creates a ConfigMap with a label.
func (l *declaredLab) labelled(name, label string) {
	l.Helper()
	l.Local.Create(l.T, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {%s}}, data: {mode: fast}}`, name, label))
}

// settled waits until n ConfigMaps of the namespace have copies and the queues are empty.
func (l *declaredLab) settled(n int) {
	l.Helper()
	l.Eventually(func() error {
		copies, err := l.Remote.Of("ConfigMap", l.RemoteNS).List(l.Context(), metav1.ListOptions{LabelSelector: "offloading.liqo.io/origin=rome"})
		if err != nil {
			return err
		}
		if len(copies.Items) != n {
			return fmt.Errorf("%d copies, want %d", len(copies.Items), n)
		}
		if waiting, _ := l.Manager.Queued(); waiting > 0 {
			return errors.New("objects are enqueued")
		}
		return nil
	})
}

// TestRehearsalReportsWhatWouldChange checks that the report of a rehearsal counts the objects and names the fields
// that the rehearsed revision would change, and that a rehearsal sends no requests.
func TestRehearsalReportsWhatWouldChange(t *testing.T) {
	t.Parallel()
	l := newDeclaredLab(t)
	l.declare(declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1"))))
	for i := range 20 {
		label := "do: pass"
		if i == 7 {
			label = "do: fail"
		}
		l.labelled(fmt.Sprintf("map-%02d", i), label)
	}
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Start()
	l.settled(21) // 20 ConfigMaps and the root CA
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	before := [2]int{len(l.Local.Requests(t)), len(l.Remote.Requests(t))}
	_, evaluated := l.Manager.Queued()
	rehearse := func(body string) *api.PluginRehearsalResult {
		t.Helper()
		return reflectiontest.Must(reflection.RehearsePlugin(t.Context(), l.Manager, l.candidate(declaredPlugin("team", "team-2", module(t, "2", body)))))(t)
	}

	got := rehearse(fmt.Sprintf(setsLabel, "v1"))
	require.Equal(t, &api.PluginRehearsalResult{Against: "team-1", Objects: 22, Unchanged: 22}, got)

	got = rehearse(fmt.Sprintf(setsLabel, "v2"))
	require.EqualValues(t, 22, got.Changed)
	require.Zero(t, got.Unchanged+got.Removed+got.Errors+got.NotDeterministic)
	require.Equal(t, []api.RehearsedPath{{Kind: "ConfigMap", Path: "metadata.labels.by", Objects: 21}, {Kind: "Service", Path: "metadata.labels.by", Objects: 1}}, got.Paths)
	require.Len(t, got.Examples, 5)

	got = rehearse(failsWhereAsked)
	require.EqualValues(t, 1, got.Errors)
	// Every object changes, because it would lose the label of the first revision.
	require.EqualValues(t, 21, got.Changed)
	require.Equal(t, api.RehearsedObject{Kind: "ConfigMap", Namespace: l.Namespace, Name: "map-07", Outcome: api.ErrorOutcome,
		Message: "PluginFailed; `refractctl plugin run` with the object shows the message"}, got.Examples[0])

	// An ignored failure must count as an error, too, because the object would be reflected without the plugin.
	ignored := declaredPlugin("team", "team-2", module(t, "2", failsWhereAsked))
	ignored.Options.IgnoreFailure = true
	got = reflectiontest.Must(reflection.RehearsePlugin(t.Context(), l.Manager, l.candidate(ignored)))(t)
	require.EqualValues(t, 1, got.Errors)
	require.EqualValues(t, 21, got.Changed)
	require.Equal(t, "map-07", got.Examples[0].Name)
	// This plugin changes no object. Its ignored failure must still count as an error.
	added := declaredPlugin("extra", "extra-1", module(t, "2", failsWhereAsked))
	added.Options.IgnoreFailure = true
	c := l.candidate(declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1"))), added)
	c.Plugin = "extra"
	got = reflectiontest.Must(reflection.RehearsePlugin(t.Context(), l.Manager, c))(t)
	require.EqualValues(t, 1, got.Errors)
	require.EqualValues(t, 21, got.Unchanged)

	got = rehearse(skipsAll)
	require.EqualValues(t, 22, got.Removed)

	got = rehearse(alternates)
	require.EqualValues(t, 22, got.NotDeterministic)

	other := declaredPlugin("zeal", "zeal-1", module(t, "9", fmt.Sprintf(setsLabel, "zz")))
	got = reflectiontest.Must(reflection.RehearsePlugin(t.Context(), l.Manager, l.candidate(declaredPlugin("team", "team-2", module(t, "2", fmt.Sprintf(setsLabel, "v2"))), other)))(t)
	require.Equal(t, []api.RehearsedConflict{{Kind: "ConfigMap", Path: "metadata.labels.by", Plugin: "zeal", Objects: 21}, {Kind: "Service", Path: "metadata.labels.by", Plugin: "zeal", Objects: 1}}, got.Conflicts)

	require.Equal(t, before, [2]int{len(l.Local.Requests(t)), len(l.Remote.Requests(t))})
	_, after := l.Manager.Queued()
	require.Equal(t, evaluated, after)
	require.Empty(t, reflectiontest.Must(l.Local.Of("Event", l.Namespace).List(t.Context(), metav1.ListOptions{}))(t).Items)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := reflection.RehearsePlugin(ended, l.Manager, l.candidate(declaredPlugin("team", "team-2", module(t, "2", skipsAll))))
	require.ErrorIs(t, err, context.Canceled)
}

// TestRehearsalMarksFieldsOfRunningPods checks that the report marks a changed field that is immutable in a running
// pod, and does not mark a field that can change.
func TestRehearsalMarksFieldsOfRunningPods(t *testing.T) {
	t.Parallel()
	l := newDeclaredLab(t)
	l.Pod("web")
	l.Start()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Eventually(func() error {
		if l.Manager.Scope(reflection.PodKind, l.Namespace).CachedCopy("web") == nil {
			return errors.New("the copy is not cached")
		}
		return nil
	})
	rehearse := func(body string) *api.PluginRehearsalResult {
		return reflectiontest.Must(reflection.RehearsePlugin(t.Context(), l.Manager, l.candidate(declaredPlugin("team", "team-2", module(t, "2", body)))))(t)
	}
	got := rehearse(setsDNS)
	require.EqualValues(t, 1, got.Unchanged)
	// The only ConfigMap is the root CA.
	require.Equal(t, []api.RehearsedPath{{Kind: "ConfigMap", Path: "spec.dnsPolicy", Objects: 1}, {Kind: "Pod", Path: "spec.dnsPolicy", Objects: 1, NewPodsOnly: true}}, got.Paths)
	got = rehearse(fmt.Sprintf(setsLabel, "v2"))
	require.EqualValues(t, 2, got.Changed)
	require.Equal(t, []api.RehearsedPath{{Kind: "ConfigMap", Path: "metadata.labels.by", Objects: 1}, {Kind: "Pod", Path: "metadata.labels.by", Objects: 1}}, got.Paths)
}

// TestRehearsalDoesNotCountOnWhatIsHeld checks that the report has errors if all objects are held because of another
// plugin, or if it is not known whether the plugin selects them. A report without errors would let the revision be
// promoted.
func TestRehearsalDoesNotCountOnWhatIsHeld(t *testing.T) {
	t.Parallel()
	l := newDeclaredLab(t)
	l.labelled("map", "do: pass")
	l.Start()
	l.settled(2) // and the root CA
	team := declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1")))
	lost := declaredPlugin("zeal", "zeal-1", nil)
	lost.Err, lost.Options.Kinds = errors.New("the module is lost"), []string{"ConfigMap"}
	rehearse := func(all ...source.Declared) (*api.PluginRehearsalResult, error) {
		next, _, err := l.chains.NewCandidate(t.Context(), all)
		require.NoError(t, err)
		t.Cleanup(func() { next.Close(context.Background()) })
		return reflection.RehearsePlugin(t.Context(), l.Manager, reflection.PluginCandidate{Plugin: "team",
			Kinds: []string{"ConfigMap"}, Next: next.Registry()})
	}
	got := reflectiontest.Must(rehearse(team, lost))(t)
	require.EqualValues(t, 2, got.Objects)
	require.EqualValues(t, 2, got.Errors)
	require.Contains(t, got.Examples[0].Message, "the module is lost")

	selected := &selection{}
	team.Selector = selected
	_, err := rehearse(team)
	require.ErrorContains(t, err, "the labels are not known")
	selected.isKnown.Store(true)
	got = reflectiontest.Must(rehearse(team))(t)
	require.EqualValues(t, 2, got.Changed)
}

// selection is a selector that selects all objects as soon as isKnown is set.
type selection struct{ isKnown atomic.Bool }

func (s *selection) Selects(*host.Env) (bool, error) {
	if !s.isKnown.Load() {
		return false, errors.New("the labels are not known")
	}
	return true, nil
}
