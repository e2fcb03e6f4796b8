// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

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

	// The candidate may also be the plugin that overwrites the changes of another one.
	other.Options.Priority = -1
	c = l.candidate(declaredPlugin("team", "team-2", module(t, "2", fmt.Sprintf(setsLabel, "v2"))), other)
	got = reflectiontest.Must(reflection.RehearsePlugin(t.Context(), l.Manager, c))(t)
	require.Equal(t, []api.RehearsedConflict{
		{Kind: "ConfigMap", Path: "metadata.labels.by", Plugin: "team", Earlier: "zeal", Objects: 21},
		{Kind: "Service", Path: "metadata.labels.by", Plugin: "team", Earlier: "zeal", Objects: 1},
	}, got.Conflicts)
	// Default plugins do not count. This plugin sets a field that the default plugin for Services removes.
	got = rehearse(setsClusterIP)
	require.EqualValues(t, 22, got.Changed)
	require.Empty(t, got.Conflicts)

	require.Equal(t, before, [2]int{len(l.Local.Requests(t)), len(l.Remote.Requests(t))})
	_, after := l.Manager.Queued()
	require.Equal(t, evaluated, after)
	require.Empty(t, reflectiontest.Must(l.Local.Of("Event", l.Namespace).List(t.Context(), metav1.ListOptions{}))(t).Items)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := reflection.RehearsePlugin(ended, l.Manager, l.candidate(declaredPlugin("team", "team-2", module(t, "2", skipsAll))))
	require.ErrorIs(t, err, context.Canceled)
}

// TestRehearsalRepeatsEveryEvaluation checks that the report counts every object on which a revision is not
// deterministic, however many there are.
func TestRehearsalRepeatsEveryEvaluation(t *testing.T) {
	t.Parallel()
	const maps = 250
	l := newDeclaredLab(t)
	l.Local.ConfigMaps(t, l.Namespace, maps)
	l.Start()
	l.settled(maps + 1) // including the root CA
	candidate := l.candidate(declaredPlugin("team", "team-1", module(t, "1", alternates)))
	got := reflectiontest.Must(reflection.RehearsePlugin(t.Context(), l.Manager, candidate))(t)
	require.EqualValues(t, maps+1, got.NotDeterministic)
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
	l.settled(2) // including the root CA
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

// rehearsed is the number of ConfigMaps that TestUpdatesDuringARehearsal rehearses. The figure in RATIONALE.md was
// measured with 10,000.
var rehearsed = flag.Int("rehearsed", 50, "ConfigMaps in TestUpdatesDuringARehearsal")

// TestUpdatesDuringARehearsal checks that changes of users are reflected while a revision is rehearsed again and again,
// and that the rehearsals write nothing. It prints how long the changes took without and with a rehearsal.
func TestUpdatesDuringARehearsal(t *testing.T) {
	t.Parallel()
	l := newDeclaredLab(t)
	l.declare(declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1"))))
	l.Local.ConfigMaps(t, l.Namespace, *rehearsed)
	l.Start()
	l.settled(*rehearsed + 1) // the ConfigMaps and the root CA
	candidate := l.candidate(declaredPlugin("team", "team-2", module(t, "2", fmt.Sprintf(setsLabel, "v2"))))

	// Rounds without and with a rehearsal alternate, so that both see the same state of the machine.
	rounds, updates := 1, *rehearsed
	if *rehearsed >= 1000 {
		rounds, updates = 10, 300
	}
	before := len(l.Remote.Writes(t))
	var idle, busy []time.Duration
	rehearsals := 0
	for round := range rounds {
		idle = append(idle, l.measureUpdates(updates, fmt.Sprint("idle ", round))...)
		stop := l.rehearseRepeatedly(candidate)
		busy = append(busy, l.measureUpdates(updates, fmt.Sprint("busy ", round))...)
		rehearsals += stop()
	}
	slices.Sort(idle)
	slices.Sort(busy)
	t.Logf("%d rehearsals of %d ConfigMaps during %d updates; p50 and p99 of the updates without a rehearsal: %s, %s; with one: %s, %s; ratio of p99: %.2f",
		rehearsals, *rehearsed, rounds*updates, percentile(idle, 50), percentile(idle, 99), percentile(busy, 50), percentile(busy, 99),
		float64(percentile(busy, 99))/float64(percentile(idle, 99)))
	require.Len(t, l.Remote.Writes(t)[before:], 2*rounds*updates, "only the updates are written")
}

// rehearseRepeatedly rehearses a candidate again and again. stop waits for the end of the
// current rehearsal, and returns the number of completed ones, which is at least 1.
func (l *declaredLab) rehearseRepeatedly(candidate reflection.PluginCandidate) (stop func() (completed int)) {
	isStopped, ended := &atomic.Bool{}, make(chan int, 1)
	go func() {
		completed := 0
		for ; completed == 0 || !isStopped.Load(); completed++ {
			result, err := reflection.RehearsePlugin(l.Context(), l.Manager, candidate)
			if err != nil || int(result.Changed) != *rehearsed+1 || result.Errors > 0 {
				l.Errorf("the rehearsal reports %+v, %v", result, err)
				break
			}
		}
		ended <- completed
	}()
	return func() int { isStopped.Store(true); return <-ended }
}

// measureUpdates changes ConfigMaps, 50 per second, and returns how long each change took to reach the copy.
func (l *declaredLab) measureUpdates(updates int, value string) []time.Duration {
	l.Helper()
	// The watch begins after the existing copies, because their events would delay the events of the changes.
	remote := l.Remote.Of("ConfigMap", l.RemoteNS)
	present := reflectiontest.Must(remote.List(l.Context(), metav1.ListOptions{Limit: 1}))(l.T)
	copies := reflectiontest.Must(remote.Watch(l.Context(), metav1.ListOptions{ResourceVersion: present.GetResourceVersion()}))(l.T)
	defer copies.Stop()
	begun := make(chan struct{})
	sent := make([]time.Time, updates)
	go func() {
		defer close(begun)
		pace := rate.NewLimiter(50, 1)
		for n := range updates {
			if err := pace.Wait(l.Context()); err != nil {
				l.Error(err)
				return
			}
			sent[n] = time.Now()
			patch := fmt.Appendf(nil, `{"data":{"mode":%q}}`, value)
			if _, err := l.Local.Core.CoreV1().ConfigMaps(l.Namespace).Patch(l.Context(), fmt.Sprintf("good-%d", n), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				l.Error(err)
				return
			}
		}
	}()
	arrived := map[string]time.Time{}
	limit := time.After(2 * time.Minute)
	for len(arrived) < updates {
		select {
		case event, ok := <-copies.ResultChan():
			require.True(l, ok, "the watch of the copies has ended")
			copied, isObject := event.Object.(*unstructured.Unstructured)
			if !isObject {
				continue
			}
			mode, _, _ := unstructured.NestedString(copied.Object, "data", "mode")
			if _, isKnown := arrived[copied.GetName()]; mode == value && !isKnown {
				arrived[copied.GetName()] = time.Now()
			}
		case <-limit:
			require.FailNow(l, "changes are missing", "%d of %d have arrived", len(arrived), updates)
		}
	}
	<-begun
	durations := make([]time.Duration, updates)
	for n := range updates {
		durations[n] = arrived[fmt.Sprintf("good-%d", n)].Sub(sent[n])
	}
	return durations
}

// percentile returns a percentile of sorted durations.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1].Round(100 * time.Microsecond)
}
