// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/pluginrevision"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// leaves changes a revision so that it removes another label.
func leaves(s *plugins.PluginRevisionSpec) {
	s.Config = &runtime.RawExtension{Raw: []byte(`{"labels":["two.example.com/*"]}`)}
}

// promote creates a revision of a plugin, and promotes it as the controller manager does.
func (l *lab) promote(p *plugins.ReflectionPlugin, number int64, change func(*plugins.PluginRevisionSpec)) {
	l.Helper()
	before := p.DeepCopy()
	now := metav1.Now()
	p.Status.PreviousRevision, p.Status.PromotedAt = p.Status.ActiveRevision, &now
	l.must(l.admin.Status().Patch(l.Context(), p, client.MergeFrom(before)))
	l.activate(p, number, change)
}

// onProbation waits until one revision is on probation.
func (l *lab) onProbation(set *reflection.Probations, revision string) (found *reflection.Probation) {
	l.Helper()
	l.eventually("the probation of "+revision, func() error {
		current := set.Current()
		if len(current) != 1 || current[0].Revision != revision {
			return fmt.Errorf("it is %v", current)
		}
		found = current[0]
		return nil
	})
	return found
}

// TestRevisionsAreRolledBack checks that a revision that fails during its probation is rolled back on this virtual node
// until another revision is active. This does not need the controller manager, and is also valid after a restart.
func TestRevisionsAreRolledBack(t *testing.T) {
	l := newLab(t, true)
	l.store()
	p := l.declare("strip", nil)
	set := reflection.NewProbations(clock.RealClock{})
	withSet := func(o *Options) { o.Probations = set }
	f := l.follower(withSet)
	l.must(f.ReadPlugins(t.Context()))
	l.run(f)
	l.expect("mutated")
	require.Empty(t, set.Current())
	l.promote(p, 2, leaves)
	l.expect("left")
	l.entry("strip-2", plugins.ActivePlugin, RunningReason)
	l.onProbation(set, "strip-2").RollBack("it failed in 7 of 20 evaluations")
	l.expect("mutated")
	message := l.entry("strip-2", plugins.RolledBackPlugin, FailedInProbationReason)
	assert.Contains(t, message, "it failed in 7 of 20 evaluations. This virtual node goes back to revision strip-1")
	l.entry("strip-1", plugins.ActivePlugin, RunningReason)
	assert.Contains(t, <-l.events.Events, "Warning FailedInProbation revision strip-2")
	assert.Empty(t, set.Current())

	l.newChains()
	restarted := l.follower(withSet)
	l.must(restarted.ReadPlugins(t.Context()))
	l.expect("mutated")
	l.run(restarted)
	l.promote(p, 3, leaves)
	l.expect("left")
	l.onProbation(set, "strip-3")
}

// TestProbationsFollowTheRollout checks that the permitted number of removals comes from the settings or, if a user has
// approved the revision, from its rehearsal, and that a probation ends on its own.
func TestProbationsFollowTheRollout(t *testing.T) {
	l := newLab(t, true)
	l.store()
	p := l.declare("strip", nil)
	set := reflection.NewProbations(clock.RealClock{})
	f := l.follower(func(o *Options) { o.Probations = set })
	l.must(f.ReadPlugins(t.Context()))
	l.run(f)
	l.promote(p, 2, nil)
	found := l.onProbation(set, "strip-2")
	assert.EqualValues(t, 0, found.MaxRemoved)
	assert.EqualValues(t, 1, found.MaxFailedPercent)

	before := p.DeepCopy()
	p.Spec.Rollout.Strategy = plugins.RehearseRollout
	p.Spec.Rollout.Rehearsal = &plugins.PluginRehearsal{MaxRemoved: 3}
	l.must(l.admin.Patch(t.Context(), p, client.MergeFrom(before)))
	l.eventually("the removals", func() error {
		if found := l.onProbation(set, "strip-2"); found.MaxRemoved != 3 {
			return fmt.Errorf("%d are permitted", found.MaxRemoved)
		}
		return nil
	})

	revision := &plugins.PluginRevision{}
	l.must(l.admin.Get(t.Context(), client.ObjectKey{Name: "strip-2"}, revision))
	revision.Status.VirtualNodes[0].Rehearsal = &plugins.PluginRehearsalResult{Removed: 7}
	l.must(l.admin.Status().Update(t.Context(), revision))
	before = p.DeepCopy()
	p.Spec.Rollout.Rehearsal.Approved = "strip-2"
	l.must(l.admin.Patch(t.Context(), p, client.MergeFrom(before)))
	l.eventually("the approved removals", func() error {
		if found := l.onProbation(set, "strip-2"); found.MaxRemoved != 7 {
			return fmt.Errorf("%d are permitted", found.MaxRemoved)
		}
		return nil
	})

	before = p.DeepCopy()
	p.Spec.Rollout.Probation = &metav1.Duration{Duration: time.Since(p.Status.PromotedAt.Time) + 2*time.Second}
	l.must(l.admin.Patch(t.Context(), p, client.MergeFrom(before)))
	l.eventually("the end of the probation", func() error {
		f.refreshing.Lock()
		defer f.refreshing.Unlock()
		if len(set.Current())+len(f.onProbation) > 0 {
			return fmt.Errorf("%d are on probation", len(f.onProbation))
		}
		return nil
	})
}

// TestCandidatesAreRehearsed checks that a candidate is rehearsed once, and again when the set of plugins changes. Such
// a change ends a running rehearsal. The result is in the entry of the candidate.
func TestCandidatesAreRehearsed(t *testing.T) {
	l := newLab(t, true)
	l.store()
	p := l.declare("strip", nil)
	// The candidate of another plugin was deleted.
	other := l.declare("another", nil)
	other.Status.ActiveRevision, other.Status.CandidateRevision = "", "another-9"
	l.must(l.admin.Status().Update(t.Context(), other))
	changed := make(chan struct{}, 1)
	f := l.follower(func(o *Options) {
		o.Changed = func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	l.must(f.ReadPlugins(t.Context()))
	l.run(f)
	begun, release := make(chan reflection.PluginCandidate, 10), make(chan struct{})
	ended := make(chan error, 10)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- f.RunRehearsals(ctx, changed, func(ctx context.Context, c reflection.PluginCandidate) (*plugins.PluginRehearsalResult, error) {
			begun <- c
			select {
			case <-ctx.Done():
				ended <- ctx.Err()
				return nil, ctx.Err()
			case <-release:
				return &plugins.PluginRehearsalResult{Against: c.Against, Objects: 4, Changed: 3, Removed: 1}, nil
			}
		})
	}()
	defer func() { cancel(); assert.NoError(t, <-done) }()
	candidate := func(number int64) {
		l.create(p, number, leaves)
		before := p.DeepCopy()
		p.Status.CandidateRevision = fmt.Sprintf("strip-%d", number)
		l.must(l.admin.Status().Patch(t.Context(), p, client.MergeFrom(before)))
	}
	candidate(2)
	first := <-begun
	assert.Equal(t, "strip", first.Plugin)
	assert.Equal(t, "strip-1", first.Against)
	assert.Equal(t, []string{"Service"}, first.Kinds)
	l.entry("strip-2", plugins.RehearsingPlugin, RehearsingReason)
	l.expect("mutated")

	candidate(3)
	require.ErrorIs(t, <-ended, context.Canceled)
	close(release)
	l.entry("strip-3", plugins.StandbyPlugin, RehearsedReason)
	r := &plugins.PluginRevision{}
	l.must(l.admin.Get(t.Context(), client.ObjectKey{Name: "strip-3"}, r))
	want := &plugins.PluginRehearsalResult{Against: "strip-1", Objects: 4, Changed: 3, Removed: 1}
	want.OtherRevisions = pluginrevision.OthersKey(nil, "strip")
	assert.Equal(t, want, r.Status.VirtualNodes[0].Rehearsal)
}

// probed is a follower on the workbench, together with its probations.
type probed struct {
	*workbench
	*Follower
	set *reflection.Probations
}

// probe starts a follower after the watches have reported the plugin and its revisions.
func (w *workbench) probe(p *plugins.ReflectionPlugin, revisions ...*plugins.PluginRevision) *probed {
	w.Helper()
	f := &probed{workbench: w, set: reflection.NewProbations(w.clock)}
	f.Follower = w.follower(func(o *Options) { o.Probations = f.set })
	f.show(p, revisions...)
	return f
}

// show makes the watches report a plugin and revisions, and installs them.
func (f *probed) show(p *plugins.ReflectionPlugin, revisions ...*plugins.PluginRevision) {
	f.workbench.Helper()
	f.watch(f.plugins, p)
	for _, r := range revisions {
		f.watch(f.revisions, r)
	}
	f.refreshNow()
}

// refreshNow does the same as refresh.
func (f *probed) refreshNow() {
	f.workbench.Helper()
	all, err := f.watchedPlugins()
	f.must(err)
	find := func(name string) (*plugins.PluginRevision, error) { return f.findRevision(f.Context(), name) }
	f.installPlugins(f.Context(), f.selectActive(all, find))
}

// only returns the single current probation, and fails the test if there are more or none.
func (f *probed) only() *reflection.Probation {
	f.workbench.Helper()
	require.Len(f.workbench, f.set.Current(), 1)
	return f.set.Current()[0]
}

// previously runs the chains from before the promotion on a Service. It returns which of the labels that revisions 1
// and 2 remove are left.
func (f *probed) previously() (labels []string, err error) {
	f.workbench.Helper()
	doc := document.New()
	doc.Reset(map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web",
		"labels": map[string]any{"v1.example.com/x": "1", "v2.example.com/x": "1"}}})
	env := &host.Env{Domain: "shop", Namespace: "shop"}
	if _, err := f.only().Previous.Run(f.Context(), "Service", host.Outgoing, doc, env); err != nil {
		return nil, err
	}
	for _, label := range []string{"v1", "v2"} {
		if doc.Root().View().Field("metadata").Field("labels").Field(label + ".example.com/x").Exists() {
			labels = append(labels, label)
		}
	}
	return labels, nil
}

// TestUnprovenRevisionsStayOnProbation checks that removals are not compared with a previous revision that is unproven,
// because objects that it skips do not count as already skipped. After a rollback, the previous revision itself is on
// probation, even without the controller manager.
func TestUnprovenRevisionsStayOnProbation(t *testing.T) {
	w := newWorkbench(t)
	p := w.newPlugin(w.clock.Now())
	p.Spec.Rollout.Rehearsal = &plugins.PluginRehearsal{MaxRemoved: 3}
	f := w.probe(p, w.newRevision(1), w.newRevision(2))
	left, err := f.previously()
	w.must(err)
	assert.Equal(t, []string{"v2"}, left, "proven")
	p.Status.PreviousUnproven = true
	p.Status.PromotedAt = &metav1.Time{Time: p.Status.PromotedAt.Add(time.Minute)}
	f = w.probe(p, w.newRevision(1), w.newRevision(2))
	f.Lead()
	left, err = f.previously()
	w.must(err)
	assert.Equal(t, []string{"v1", "v2"}, left)
	assert.EqualValues(t, 1, f.only().MaxFailedPercent)
	f.only().RollBack("it failed in 7 of 20 evaluations")
	for range 2 {
		require.Equal(t, []string{"strip-1"}, w.install(f.Follower))
		assert.Equal(t, "strip-1", f.only().Revision)
		assert.EqualValues(t, 100, f.only().MaxFailedPercent, "there is nothing to go back to")
		assert.Zero(t, f.only().MaxRemoved)
		left, err = f.previously()
		w.must(err)
		assert.Equal(t, []string{"v1", "v2"}, left)
	}
	w.clock.Step(10 * time.Minute)
	assert.Empty(t, f.set.Current())
}

// TestProbationsOutliveUnreadRevisions checks that a probation continues while the active revision cannot be read.
func TestProbationsOutliveUnreadRevisions(t *testing.T) {
	w := newWorkbench(t)
	p, second := w.newPlugin(w.clock.Now()), w.newRevision(2)
	f := w.probe(p, w.newRevision(1), second)
	f.Lead()
	f.refreshNow()
	chains := f.onProbation["strip"].chains
	w.must(f.revisions.GetStore().Delete(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "strip-2"}}}))
	f.refreshNow()
	require.Error(t, f.Statuses()[0].Err)
	assert.Equal(t, "strip-2", f.only().Revision)
	assert.Same(t, chains, f.onProbation["strip"].chains)
	f.show(p, second)
	left, err := f.previously()
	w.must(err)
	assert.Equal(t, []string{"v2"}, left)
}

// TestProbationsFollowTheFolder checks that a change of the plugin directory during a probation is not attributed to
// the revision. The chains from before the promotion have the changed plugins, too, as soon as these run. An object
// that a changed plugin skips or fails on is neither held nor counted as a failure of the revision, and the probation
// continues.
func TestProbationsFollowTheFolder(t *testing.T) {
	w := newWorkbench(t)
	f := w.probe(w.newPlugin(w.clock.Now()), w.newRevision(1), w.newRevision(2))
	f.Lead()
	for range 2 { // the first one begins the probation
		f.refreshNow()
	}
	before := f.only()
	options := source.Options{Config: map[string]any{"labels": []any{"v2.example.com/*"}}}
	for _, c := range []struct {
		modules []source.Module
		left    []string
	}{
		{nil, []string{"v2"}},
		{[]source.Module{{Name: "folder", Wasm: w.wasm, Options: options}}, nil},
		{nil, []string{"v2"}},
	} {
		for _, s := range w.chains.Apply(t.Context(), c.modules) {
			w.must(s.Err)
		}
		left, err := f.previously()
		w.must(err)
		assert.Equal(t, c.left, left)
		f.refreshNow()
		left, err = f.previously()
		w.must(err)
		assert.Equal(t, c.left, left)
	}
	assert.Equal(t, before.Until, f.only().Until)
}

// TestRevisionsAreNotComparedWithThemselves checks that a revision is not compared with itself if the previous revision
// cannot be loaded. All removals are held until it can be loaded.
func TestRevisionsAreNotComparedWithThemselves(t *testing.T) {
	w := newWorkbench(t)
	p, lost := w.newPlugin(w.clock.Now()), w.newRevision(1)
	lost.Spec.SHA256 = strings.Repeat("a", 64)
	f := w.probe(p, lost, w.newRevision(2))
	_, err := f.previously()
	require.Error(t, err, "nothing ran before")
	f.Close()
	w.probe(p, lost, w.newRevision(2)).Close()
	f = w.probe(p, lost, w.newRevision(2)) // the chains run revision 2
	_, err = f.previously()
	require.ErrorContains(t, err, "cannot be loaded")
	f.show(p, w.newRevision(1))
	left, err := f.previously()
	w.must(err)
	assert.Equal(t, []string{"v2"}, left)
}

// TestEasedProbationsEvaluateWhatTheyHold checks that objects whose copies are held are evaluated again when a user
// permits more removals or shortens the probation, and not after other changes.
func TestEasedProbationsEvaluateWhatTheyHold(t *testing.T) {
	w := newWorkbench(t)
	p := w.newPlugin(w.clock.Now())
	f := w.probe(p, w.newRevision(1), w.newRevision(2))
	var eased [][]string
	f.OnEased(func(kinds []string) { eased = append(eased, kinds) })
	f.Lead()
	f.refreshNow()
	for _, kind := range []string{"Service", "Pod", "Service"} {
		require.Error(t, reflectiontest.RemoveSkipped(f.set, kind, "web"))
	}
	f.refreshNow()
	require.Empty(t, eased)
	for _, c := range []struct {
		maxRemoved int32
		probation  time.Duration
		isEased    bool
	}{
		{1, 10 * time.Minute, true}, {0, 10 * time.Minute, false}, {0, 5 * time.Minute, true}, {0, 8 * time.Minute, false},
		{0, 30 * time.Second, true},
	} {
		eased = nil
		if c.probation < time.Minute {
			w.clock.Step(time.Minute)
		}
		p.Spec.Rollout.Rehearsal = &plugins.PluginRehearsal{MaxRemoved: c.maxRemoved}
		p.Spec.Rollout.Probation = &metav1.Duration{Duration: c.probation}
		f.show(p)
		if c.isEased {
			assert.Equal(t, [][]string{{"Pod", "Service"}}, eased, "%+v", c)
		} else {
			assert.Empty(t, eased, "%+v", c)
		}
	}
	require.Empty(t, f.set.Current())
}

// TestRemovalsArePermittedOnce checks that the removals that the settings permit are permitted only once, no matter
// which process continues the probation.
func TestRemovalsArePermittedOnce(t *testing.T) {
	w := newWorkbench(t)
	p, second := w.newPlugin(w.clock.Now()), w.newRevision(2)
	p.Spec.Rollout.Rehearsal = &plugins.PluginRehearsal{MaxRemoved: 3}
	leader, standby := w.probe(p, w.newRevision(1), second), w.probe(p, w.newRevision(1), second)
	leader.Lead()
	for range 3 {
		leader.refreshNow()
		require.EqualValues(t, 3, leader.only().MaxRemoved)
	}
	second.Status.VirtualNodes = []plugins.VirtualNodePlugin{*leader.desiredEntry(second, nil, []*plugins.ReflectionPlugin{p})}
	require.NotNil(t, second.Status.VirtualNodes[0].ActiveSince)
	restarted := w.probe(p, w.newRevision(1), second)
	standby.show(p, second)
	for _, f := range []*probed{standby, restarted} {
		f.Lead()
		for range 2 {
			f.refreshNow()
			assert.Zero(t, f.only().MaxRemoved)
		}
	}
	leader.show(p, second)
	assert.EqualValues(t, 3, leader.only().MaxRemoved)
}
