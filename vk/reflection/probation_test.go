// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
)

// probationLab is a lab with plugins that can be on probation.
type probationLab struct {
	*declaredLab
	probations *reflection.Probations
	rolledBack chan string
}

func newProbationLab(t *testing.T, active source.Declared) *probationLab {
	t.Helper()
	l := &probationLab{probations: reflection.NewProbations(clock.RealClock{}), rolledBack: make(chan string, 10)}
	l.declaredLab = newDeclaredLab(t, func(o *reflection.Options) { o.Probations = l.probations })
	l.declare(active)
	return l
}

// promote replaces a plugin with its next revision, which is then on probation. The chains from before the promotion
// stay loaded.
func (l *probationLab) promote(active, next source.Declared, change ...func(*reflection.ProbationOptions)) *reflection.Probation {
	l.Helper()
	previous, _, err := l.chains.NewCandidate(l.Context(), []source.Declared{active})
	require.NoError(l, err)
	l.Cleanup(func() { previous.Close(context.Background()) })
	o := reflection.ProbationOptions{Plugin: "team", Revision: next.Revision, Until: time.Now().Add(time.Hour), Previous: previous.Registry(), MaxFailedPercent: 1,
		RollBack: func(message string) { l.rolledBack <- message }}
	for _, f := range change {
		f(&o)
	}
	p := reflection.NewProbation(o)
	l.probations.Replace([]*reflection.Probation{p})
	l.declare(next)
	return p
}

// copies waits until the namespace has n copies of ConfigMaps and p keeps the given number of copies from being
// deleted.
func (l *probationLab) copies(p *reflection.Probation, n, held int) {
	l.Helper()
	l.Eventually(func() error {
		copies, err := l.Remote.Of("ConfigMap", l.RemoteNS).List(l.Context(), metav1.ListOptions{LabelSelector: "offloading.liqo.io/origin=rome"})
		if err != nil {
			return err
		}
		if len(copies.Items) != n || p.Held() != held {
			return fmt.Errorf("%d copies, want %d; %d are held, want %d", len(copies.Items), n, p.Held(), held)
		}
		return nil
	})
}

// TestNewSkipsRemoveNothing checks that if a promoted plugin skips every object, no more than the permitted number of
// copies is deleted while the plugin is on probation.
func TestNewSkipsRemoveNothing(t *testing.T) {
	t.Parallel()
	first, second := declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1"))), declaredPlugin("team", "team-2", module(t, "2", skipsAll))
	l := newProbationLab(t, first)
	for i := range 5 {
		l.labelled(fmt.Sprintf("map-%d", i), "do: pass")
	}
	l.Pod("web")
	l.Start()
	l.settled(6)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	p := l.promote(first, second)
	l.copies(p, 6, 7)
	l.Event(l.Namespace, "ConfigMap", "map-0", failure.PluginRemovalHeldReason, "shorten spec.rollout.probation")
	for _, write := range l.Remote.Writes(t) {
		require.NotRegexp(t, "^delete", write)
	}

	more := reflection.NewProbation(reflection.ProbationOptions{Plugin: "team", Revision: "team-2", Until: time.Now().Add(time.Hour), Previous: p.Previous, MaxFailedPercent: 1, MaxRemoved: 2,
		RollBack: p.RollBack})
	more.Continues(p)
	l.probations.Replace([]*reflection.Probation{more})
	require.Equal(t, []string{reflection.ConfigMapKind, reflection.PodKind}, more.HeldKinds())
	l.Manager.Reevaluate([]string{reflection.ConfigMapKind, "Unknown"})
	l.copies(more, 4, 5)

	over := reflection.NewProbation(reflection.ProbationOptions{Plugin: "team", Revision: "team-2", Until: time.Now(), Previous: p.Previous, RollBack: p.RollBack})
	over.Continues(more)
	l.probations.Replace([]*reflection.Probation{over})
	l.Manager.EnqueueAll(reflection.ConfigMapKind)
	l.Manager.EnqueueAll(reflection.PodKind)
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.copies(over, 0, over.Held())
	require.Empty(t, l.rolledBack)
}

// TestKnownSkipsRemove checks that the copies of skipped objects are deleted at once if the previous revision skips
// the same objects as the promoted revision.
func TestKnownSkipsRemove(t *testing.T) {
	t.Parallel()
	first, second := declaredPlugin("team", "team-1", module(t, "1", skipsAll)), declaredPlugin("team", "team-2", module(t, "2", skipsAll))
	l := newProbationLab(t, declaredPlugin("team", "team-0", module(t, "0", fmt.Sprintf(setsLabel, "v0"))))
	l.labelled("map", "do: pass")
	l.Start()
	l.settled(2)
	l.copies(l.promote(first, second), 0, 0)
}

// applyFolder makes a module the only plugin of the plugin directory.
func (l *probationLab) applyFolder(wasm []byte, options source.Options) {
	l.Helper()
	for _, s := range l.chains.Apply(l.Context(), []source.Module{{Name: "folder", Wasm: wasm, Options: options}}) {
		require.NoError(l, s.Err)
	}
}

// TestFolderDuringAProbation checks that the effects of a plugin of the folder are not attributed to a revision on
// probation: the copies of objects that it skips are deleted at once, and failures that it causes in the revision do
// not roll it back.
func TestFolderDuringAProbation(t *testing.T) {
	t.Parallel()
	const maps = 30
	first := declaredPlugin("team", "team-1", module(t, "1", failsWhereAsked))
	second := declaredPlugin("team", "team-2", module(t, "2", failsWhereAsked))
	l := newProbationLab(t, first)
	l.Local.ConfigMaps(t, l.Namespace, maps)
	l.Start()
	l.settled(maps + 1) // including the root CA
	p := l.promote(first, second)
	l.Settled()

	evaluated := l.Manager.Evaluated(reflection.ConfigMapKind)
	const asksForFailure = `(func (export "outgoing") (result i32)
		(call $set (i32.const 1) (i32.const 100) (i32.const 18) (i32.const 150) (i32.const 4)) (i32.const 0))`
	l.applyFolder(module(t, "3", asksForFailure), source.Options{Priority: -1})
	l.Event(l.Namespace, "ConfigMap", "good-0", failure.PluginFailedReason)
	l.Eventually(func() error {
		if n := l.Manager.Evaluated(reflection.ConfigMapKind) - evaluated; n < maps {
			return fmt.Errorf("%d objects were evaluated", n)
		}
		return nil
	})
	l.copies(p, maps+1, 0)
	require.Empty(t, l.rolledBack)

	l.applyFolder(module(t, "4", skipsAll), source.Options{})
	l.copies(p, 0, 0)
	require.Empty(t, l.rolledBack)
}

// TestFailingRevisionIsRolledBack checks that a promoted plugin that fails for 5 % of the objects is rolled back.
func TestFailingRevisionIsRolledBack(t *testing.T) {
	t.Parallel()
	first, second := declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1"))), declaredPlugin("team", "team-2", module(t, "2", failsWhereAsked))
	l := newProbationLab(t, first)
	for i := range 40 {
		label := "do: pass"
		if i%20 == 7 {
			label = "do: fail"
		}
		l.labelled(fmt.Sprintf("map-%02d", i), label)
	}
	l.Start()
	l.settled(41)
	l.promote(first, second)
	l.Eventually(func() error {
		if len(l.rolledBack) == 0 {
			return errors.New("not rolled back")
		}
		return nil
	})
	require.Contains(t, <-l.rolledBack, "evaluations of its probation (limit 1 %)")

	// A revision that fails only for objects for which the previous revision also failed must not be rolled back.
	// Repeated failures for the same object must count once.
	l.promote(second, declaredPlugin("team", "team-3", module(t, "3", failsWhereAsked)))
	evaluated := l.Manager.Evaluated(reflection.ConfigMapKind)
	l.Eventually(func() error {
		if l.Manager.Evaluated(reflection.ConfigMapKind) < evaluated+41 {
			return errors.New("not evaluated")
		}
		return nil
	})
	l.settled(41)
	require.Empty(t, l.rolledBack)
}

// TestRevisionThatFailsForPodsIsRolledBack checks that a promoted plugin that fails for 5 % of the pods is rolled back.
// The remote pods for which it fails must not change, and none may be deleted.
func TestRevisionThatFailsForPodsIsRolledBack(t *testing.T) {
	t.Parallel()
	const pods = 40
	first, second := declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1"))), declaredPlugin("team", "team-2", module(t, "2", failsWhereAsked))
	l := newProbationLab(t, first)
	for i := range pods {
		label := "pass"
		if i%20 == 7 {
			label = "fail"
		}
		l.Pod(fmt.Sprintf("web-%02d", i))
		l.Local.PatchYAML(t, "Pod", l.Namespace, fmt.Sprintf("web-%02d", i), "{metadata: {labels: {do: "+label+"}}}")
	}
	l.Start()
	// versions returns the resource version of each remote pod with the label of the first revision.
	versions := func() map[string]string {
		list, err := l.Remote.Of("ShadowPod", l.RemoteNS).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		found := map[string]string{}
		for i := range list.Items {
			labels, _, err := unstructured.NestedStringMap(list.Items[i].Object, "metadata", "labels")
			require.NoError(t, err)
			if labels["by"] == "v1" {
				found[list.Items[i].GetName()] = list.Items[i].GetResourceVersion()
			}
		}
		return found
	}
	l.Eventually(func() error {
		if n := len(versions()); n != pods {
			return fmt.Errorf("%d remote pods, want %d", n, pods)
		}
		if waiting, _ := l.Manager.Queued(); waiting > 0 {
			return errors.New("objects are enqueued")
		}
		return nil
	})
	before := versions()
	failing := []string{"web-07", "web-27"}
	l.promote(first, second)
	l.Eventually(func() error {
		if len(l.rolledBack) == 0 {
			return errors.New("not rolled back")
		}
		return nil
	})
	require.Contains(t, <-l.rolledBack, "evaluations of its probation (limit 1 %)")
	after := versions()
	for _, name := range failing {
		require.Equal(t, before[name], after[name], name)
	}
	for _, write := range l.Remote.Writes(t) {
		require.NotRegexp(t, "^delete", write)
	}
}

// breaksLabels replaces the labels of objects that have the label do: fail with a string, which is not a valid result.
const breaksLabels = `(func (export "outgoing") (result i32)
	  (if (i32.eq (i32.const 1) (call $is (i32.const 1) (i32.const 100) (i32.const 18) (i32.const 150) (i32.const 4)))
	    (then (call $set (i32.const 1) (i32.const 0) (i32.const 15) (i32.const 150) (i32.const 4))))
	  (i32.const 0))`

// TestFailuresOutsideOfThePluginCount checks that a promoted revision that harms objects without stopping the chain is
// rolled back: one revision fails and its failures are ignored, another returns objects that cannot be written.
func TestFailuresOutsideOfThePluginCount(t *testing.T) {
	t.Parallel()
	first := declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1")))
	l := newProbationLab(t, first)
	for i := range 20 {
		label := "do: pass"
		if i == 7 {
			label = "do: fail"
		}
		l.labelled(fmt.Sprintf("map-%02d", i), label)
	}
	l.Start()
	l.settled(21)
	ignored := declaredPlugin("team", "team-2", module(t, "2", failsWhereAsked))
	ignored.Options.IgnoreFailure = true
	for _, next := range []source.Declared{ignored, declaredPlugin("team", "team-3", module(t, "3", breaksLabels))} {
		l.promote(first, next)
		l.Eventually(func() error {
			if len(l.rolledBack) == 0 {
				return fmt.Errorf("%s is not rolled back", next.Revision)
			}
			return nil
		})
		require.Contains(t, <-l.rolledBack, "it failed in 1 of ")
	}
}

// TestHeldRemovalsEndWithTheirObjects checks that a copy whose removal is held during a probation is removed, and no
// longer counts as held, as soon as its object is deleted or excluded from reflection.
func TestHeldRemovalsEndWithTheirObjects(t *testing.T) {
	t.Parallel()
	first := declaredPlugin("team", "team-1", module(t, "1", fmt.Sprintf(setsLabel, "v1")))
	l := newProbationLab(t, first)
	for i := range 3 {
		l.labelled(fmt.Sprintf("map-%d", i), "do: pass")
	}
	l.Pod("web")
	l.Start()
	l.settled(4)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	p := l.promote(first, declaredPlugin("team", "team-2", module(t, "2", skipsAll)))
	l.copies(p, 4, 5)
	maps := l.Local.Of("ConfigMap", l.Namespace)
	require.NoError(t, maps.Delete(t.Context(), "map-0", metav1.DeleteOptions{}))
	l.copies(p, 3, 4)
	excluded := []byte(`{"metadata": {"annotations": {"liqo.io/skip-reflection": "true"}}}`)
	_, err := maps.Patch(t.Context(), "map-1", types.MergePatchType, excluded, metav1.PatchOptions{})
	require.NoError(t, err)
	l.copies(p, 2, 3)
	require.NoError(t, l.Local.Of("Pod", l.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	l.copies(p, 2, 2)
}
