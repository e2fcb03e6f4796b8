// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/pluginrevision"
	"github.com/refract-project/refract/vk/reflection"
)

// workbench is a lab without a control plane. Its server only has the parts of the module, and the test fills the
// caches of the watches.
type workbench struct {
	*lab
	clock   *clocktesting.FakeClock
	isEmpty atomic.Bool   // the server has no module
	stalled chan struct{} // receives a value for each request for strip-3; the server responds when the test ends
}

func newWorkbench(t *testing.T) *workbench {
	t.Helper()
	w := &workbench{lab: &lab{T: t, node: "milan", events: record.NewFakeRecorder(100)}, clock: clocktesting.NewFakeClock(time.Now()), stalled: make(chan struct{})}
	var err error
	w.wasm, err = os.ReadFile("../../examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm")
	w.must(err)
	parts, err := pluginrevision.SplitModule(w.wasm, w.digest())
	w.must(err)
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		response.Header().Set("Content-Type", "application/json")
		if path.Base(request.URL.Path) == "strip-3" {
			select {
			case w.stalled <- struct{}{}:
				<-request.Context().Done()
			case <-request.Context().Done():
			}
		}
		for _, part := range parts {
			if path.Base(request.URL.Path) == part.Name && !w.isEmpty.Load() {
				part.APIVersion, part.Kind = plugins.GroupVersion.String(), plugins.PluginModuleKind
				assert.NoError(t, json.NewEncoder(response).Encode(part))
				return
			}
		}
		response.WriteHeader(http.StatusNotFound)
		assert.NoError(t, json.NewEncoder(response).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}))
	}))
	t.Cleanup(server.Close)
	w.kubelet = &rest.Config{Host: server.URL}
	w.newChains()
	return w
}

// follower returns a follower that uses the clock of the workbench.
func (w *workbench) follower(change ...func(*Options)) *Follower {
	w.Helper()
	return w.lab.follower(append([]func(*Options){func(o *Options) { o.Clock = w.clock }}, change...)...)
}

// newPlugin returns a plugin whose revision 2 was promoted after its revision 1.
func (w *workbench) newPlugin(promotedAt time.Time) *plugins.ReflectionPlugin {
	p := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: "strip", UID: "1"}}
	p.Spec.Kinds = []string{"Service"}
	p.Status.ActiveRevision, p.Status.PreviousRevision = "strip-2", "strip-1"
	p.Status.PromotedAt = &metav1.Time{Time: promotedAt.Truncate(time.Second)}
	return p
}

// newRevision returns a revision of the plugin.
func (w *workbench) newRevision(number int64) *plugins.PluginRevision {
	isController := true
	r := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("strip-%d", number), UID: types.UID(fmt.Sprint(number)), OwnerReferences: []metav1.OwnerReference{{Name: "strip", UID: "1", Controller: &isController}}}}
	r.Spec = plugins.PluginRevisionSpec{Plugin: "strip", Number: number, SHA256: w.digest(), Size: int64(len(w.wasm)), Parts: 1}
	r.Spec.Manifest = plugins.PluginManifest{Version: "1.0.0", Kinds: []string{"*"}, Hooks: []string{"outgoing"}}
	r.Spec.Kinds, r.Spec.FailurePolicy = []string{"Service"}, plugins.FailPluginPolicy
	r.Spec.Config = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"labels":["v%d.example.com/*"]}`, number)}
	return r
}

// watch makes the watches of a follower report an object.
func (w *workbench) watch(informer cache.SharedIndexInformer, object any) {
	w.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	w.must(err)
	w.must(informer.GetStore().Add(&unstructured.Unstructured{Object: content}))
}

// install does the same as refresh, and returns the revisions that run.
func (w *workbench) install(f *Follower) (running []string) {
	w.Helper()
	all, err := f.watchedPlugins()
	w.must(err)
	active := f.selectActive(all, func(name string) (*plugins.PluginRevision, error) { return f.findRevision(w.Context(), name) })
	f.installPlugins(w.Context(), active)
	for _, s := range f.Statuses() {
		w.must(s.Err)
		running = append(running, s.Revision)
	}
	return running
}

// TestRollBacksAreOfOnePromotion checks that a rollback belongs to one promotion. Another replica applies it because of
// the entry, and an earlier state of the plugin does not revert it. If a user requests that the revision be promoted
// again, the rollback is no longer valid.
func TestRollBacksAreOfOnePromotion(t *testing.T) {
	w := newWorkbench(t)
	p, first, second := w.newPlugin(w.clock.Now()), w.newRevision(1), w.newRevision(2)
	followers := []*Follower{w.follower(), w.follower()}
	leader, standby := followers[0], followers[1]
	leader.Lead()
	show := func(p *plugins.ReflectionPlugin) {
		for _, f := range followers {
			w.watch(f.plugins, p)
			w.watch(f.revisions, first)
			w.watch(f.revisions, second)
		}
	}
	show(p)
	for _, f := range followers {
		require.Equal(t, []string{"strip-2"}, w.install(f))
	}
	leader.rollBack(p, "it failed in 7 of 20 evaluations")
	require.Equal(t, []string{"strip-1"}, w.install(leader))
	entry := leader.desiredEntry(second, nil, []*plugins.ReflectionPlugin{p})
	require.Equal(t, plugins.RolledBackPlugin, entry.State)
	require.Contains(t, entry.Message, "goes back to revision strip-1")

	second.Status.VirtualNodes = []plugins.VirtualNodePlugin{*entry}
	show(p)
	standby.Lead()
	assert.Equal(t, []string{"strip-1"}, w.install(standby), "after a takeover")
	assert.Equal(t, entry, standby.desiredEntry(second, entry, []*plugins.ReflectionPlugin{p}))

	before := p.DeepCopy()
	before.Status.ActiveRevision, before.Status.PreviousRevision, before.Status.PromotedAt = "strip-1", "", nil
	second.Status.VirtualNodes = nil
	show(before)
	w.install(leader)
	show(p)
	assert.Equal(t, []string{"strip-1"}, w.install(leader), "after an earlier state of the plugin")

	// If the previous revision is lost, the failed one continues to run, and the failure is reported.
	w.must(leader.revisions.GetStore().Delete(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "strip-1"}}}))
	assert.Equal(t, []string{"strip-2"}, w.install(leader))
	assert.Equal(t, entry, leader.desiredEntry(second, nil, []*plugins.ReflectionPlugin{p}))

	again := p.DeepCopy()
	again.Status.RejectedRevision, again.Status.PromotedAt = "strip-2", &metav1.Time{Time: p.Status.PromotedAt.Add(time.Minute)}
	second.Status.VirtualNodes = []plugins.VirtualNodePlugin{*entry}
	show(again)
	for _, f := range append(followers, w.follower()) {
		w.watch(f.plugins, again)
		w.watch(f.revisions, second)
		assert.Equal(t, []string{"strip-2"}, w.install(f), "chosen by a user")
		assert.Equal(t, plugins.ActivePlugin, f.desiredEntry(second, entry, []*plugins.ReflectionPlugin{again}).State)
	}

	later := before.DeepCopy()
	later.Status.RejectedRevision = "strip-2"
	show(later)
	require.Equal(t, []string{"strip-1"}, w.install(leader))
	assert.Equal(t, entry, leader.desiredEntry(second, entry, []*plugins.ReflectionPlugin{later}), "it is rejected")
	later.Status.RejectedRevision = "strip-3"
	leader.others["strip-2"] = *entry
	assert.Nil(t, leader.desiredEntry(second, entry, []*plugins.ReflectionPlugin{later}), "it is of no interest any more")
	assert.Empty(t, leader.others)
}

// TestProbationsBeginHere checks that the probation begins when the virtual kubelet runs the revision, is the leader
// and reaches the provider, and that it does not begin again after a restart.
func TestProbationsBeginHere(t *testing.T) {
	w := newWorkbench(t)
	p, second := w.newPlugin(w.clock.Now().Add(-time.Hour)), w.newRevision(2)
	set := reflection.NewProbations(w.clock)
	var reaches atomic.Bool
	start := func() *Follower {
		f := w.follower(func(o *Options) { o.Probations, o.ReachesProvider = set, reaches.Load })
		w.watch(f.plugins, p)
		w.watch(f.revisions, w.newRevision(1))
		w.watch(f.revisions, second)
		w.install(f)
		return f
	}
	report := func(f *Follower) *plugins.VirtualNodePlugin {
		entry := f.desiredEntry(second, nil, []*plugins.ReflectionPlugin{p})
		require.True(t, entry.PromotedAt.Equal(p.Status.PromotedAt))
		second.Status.VirtualNodes = []plugins.VirtualNodePlugin{*entry}
		return entry
	}
	f := start()
	f.Lead()
	for range 3 {
		w.install(f)
		require.Len(t, set.Current(), 1, "the provider is away")
		assert.EqualValues(t, 1, set.Current()[0].MaxFailedPercent)
		assert.Nil(t, report(f).ActiveSince)
		w.clock.Step(9 * time.Minute)
	}
	f.Close()
	f = start()
	require.Len(t, set.Current(), 1, "after a restart while the provider is away")
	f.Lead()
	reaches.Store(true)
	w.install(f)
	assert.Equal(t, w.clock.Now().Truncate(time.Second), report(f).ActiveSince.Time)
	w.clock.Step(9 * time.Minute)
	w.install(f)
	require.Len(t, set.Current(), 1)
	f.Close()
	f = start()
	require.Len(t, set.Current(), 1, "after a restart")
	w.clock.Step(time.Minute)
	assert.Empty(t, set.Current())
	w.install(f)
	assert.Empty(t, set.Current())

	// A user has selected the revision again after it was rolled back.
	p.Status.RejectedRevision, p.Status.PromotedAt = "strip-2", &metav1.Time{Time: w.clock.Now().Truncate(time.Second)}
	w.watch(f.plugins, p)
	w.install(f)
	require.Len(t, set.Current(), 1)
	assert.EqualValues(t, 100, set.Current()[0].MaxFailedPercent)
}

// TestUnreadRevisionsKeepTheirSettings checks that an active revision that cannot be read keeps its previous settings.
// If they are not known, all objects of its kinds are held.
func TestUnreadRevisionsKeepTheirSettings(t *testing.T) {
	w := newWorkbench(t)
	p, second := w.newPlugin(w.clock.Now()), w.newRevision(2)
	second.Spec.Match = &plugins.PluginMatch{Providers: []string{"milan-cluster"}}
	p.Spec.Match, p.Spec.FailurePolicy = &plugins.PluginMatch{Providers: []string{"rome-cluster"}}, plugins.IgnorePluginPolicy
	lost := func(string) (*plugins.PluginRevision, error) { return nil, errors.New("it cannot be read") }
	f := w.follower()
	active := f.selectActive([]*plugins.ReflectionPlugin{p}, lost)
	require.Len(t, active, 1, "it may be for this provider")
	assert.Equal(t, plugins.FailPluginPolicy, active[0].spec.FailurePolicy)
	assert.Nil(t, active[0].spec.Match)
	f.selectActive([]*plugins.ReflectionPlugin{p}, func(string) (*plugins.PluginRevision, error) { return second, nil })
	active = f.selectActive([]*plugins.ReflectionPlugin{p}, lost)
	require.Len(t, active, 1)
	require.Error(t, active[0].err)
	assert.Equal(t, &second.Spec, active[0].spec)
	f.selectActive(nil, lost)
	assert.Empty(t, f.read)
}

// showCandidate installs the active revision, and makes the watches report the candidate 3.
func (w *workbench) showCandidate(f *Follower) {
	w.Helper()
	p := w.newPlugin(w.clock.Now())
	p.Status.CandidateRevision = "strip-3"
	w.watch(f.plugins, p)
	for n := range int64(4) {
		w.watch(f.revisions, w.newRevision(n+1))
	}
	w.install(f)
	f.Lead()
}

// rehearsals runs the rehearsals of a follower. A change has no effect until it is received from the channel.
func (w *workbench) rehearsals(f *Follower, rehearse Rehearsal) (changed chan struct{}) {
	w.Helper()
	changed = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.RunRehearsals(ctx, changed, rehearse) }()
	w.Cleanup(func() { cancel(); assert.NoError(w, <-ended) })
	return changed
}

// awaitOther waits until the entry of a revision has the given reason. If the reason is empty, it waits until there is
// no entry.
func (w *workbench) awaitOther(f *Follower, revision, reason string) {
	w.Helper()
	w.eventually("the entry of "+revision, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if got := f.others[revision]; got.Reason != reason {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
}

// TestFailedRehearsalsAreDelayed checks that a failed rehearsal is repeated after increasing delays, even if there are
// changes in the meantime. The failure remains in the entry.
func TestFailedRehearsalsAreDelayed(t *testing.T) {
	w := newWorkbench(t)
	f := w.follower()
	var calls atomic.Int32
	var reasons [3]string
	w.showCandidate(f)
	changed := w.rehearsals(f, func(context.Context, reflection.PluginCandidate) (*plugins.PluginRehearsalResult, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := calls.Add(1)
		reasons[min(n, 3)-1] = f.others["strip-3"].Reason
		if n == 3 {
			return &plugins.PluginRehearsalResult{}, nil
		}
		return nil, errors.New("a Secret cannot be read")
	})
	for n := range 2 {
		w.awaitOther(f, "strip-3", RehearsalFailedReason)
		for range 20 {
			changed <- struct{}{}
		}
		assert.EqualValues(t, n+1, calls.Load(), "changes do not end the delay")
		w.eventually("the repetition", func() error {
			if got := calls.Load(); int(got) != n+2 {
				w.clock.Step(f.options.RetryMost)
				return fmt.Errorf("there were %d", got)
			}
			return nil
		})
	}
	w.awaitOther(f, "strip-3", RehearsedReason)
	assert.Equal(t, [3]string{RehearsingReason, RehearsalFailedReason, RehearsalFailedReason}, reasons)

	a := &attempt{}
	for _, delay := range []time.Duration{1, 2, 4, 4} {
		f.attempt(t.Context(), w.chains, &Candidate{Plugin: "strip", Revision: "strip-9"}, a, nil, func(context.Context, reflection.PluginCandidate) (*plugins.PluginRehearsalResult, error) {
			return nil, errors.New("a Secret cannot be read")
		})
		assert.Equal(t, w.clock.Now().Add(delay*f.options.RetryFirst), a.retryAt)
	}
}

// TestAStalledCandidateDelaysNothing checks that a candidate that cannot be read, because the API server does not
// respond, does not delay a promotion.
func TestAStalledCandidateDelaysNothing(t *testing.T) {
	w := newWorkbench(t)
	f := w.follower(func(o *Options) { o.CallTimeout = 20 * time.Second })
	p := w.newPlugin(w.clock.Now())
	p.Status.CandidateRevision = "strip-3"
	w.watch(f.plugins, p)
	for n := range int64(2) {
		w.watch(f.revisions, w.newRevision(n+1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := f.Candidates(ctx); failed <- err }()
	<-w.stalled
	assert.Equal(t, []string{"strip-2"}, w.install(f))
	assert.Empty(t, failed, "the promotion waited for the candidate")
	cancel()
	assert.ErrorContains(t, <-failed, "getting the candidate of ReflectionPlugin strip")
}

// TestCandidatesAwaitTheirModules checks that a candidate whose module is missing is rehearsed as soon as the module
// exists again.
func TestCandidatesAwaitTheirModules(t *testing.T) {
	w := newWorkbench(t)
	f := w.follower()
	w.showCandidate(f)
	w.isEmpty.Store(true)
	w.rehearsals(f, func(context.Context, reflection.PluginCandidate) (*plugins.PluginRehearsalResult, error) {
		return &plugins.PluginRehearsalResult{}, nil
	})
	w.awaitOther(f, "strip-3", MissingModuleReason)
	w.isEmpty.Store(false)
	w.eventually("the rehearsal", func() error {
		w.clock.Step(f.options.RetryMost)
		f.mu.Lock()
		defer f.mu.Unlock()
		if got := f.others["strip-3"]; got.Reason != RehearsedReason {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
}

// TestReplacedCandidatesAreWithdrawn checks that the entry of a candidate is removed if the candidate is replaced
// during its rehearsal.
func TestReplacedCandidatesAreWithdrawn(t *testing.T) {
	w := newWorkbench(t)
	f := w.follower()
	begun := make(chan string, 10)
	w.showCandidate(f)
	changed := w.rehearsals(f, func(ctx context.Context, c reflection.PluginCandidate) (*plugins.PluginRehearsalResult, error) {
		begun <- c.Plugin
		<-ctx.Done()
		return nil, ctx.Err()
	})
	<-begun
	w.awaitOther(f, "strip-3", RehearsingReason)
	p := w.newPlugin(w.clock.Now())
	p.Status.CandidateRevision = "strip-4"
	w.watch(f.plugins, p)
	changed <- struct{}{}
	<-begun
	w.awaitOther(f, "strip-4", RehearsingReason)
	w.awaitOther(f, "strip-3", "")
}

// TestProbationsCompareWithThePresentSet checks that a plugin that becomes active during the probation of another one
// is added to the chains that the probation compares with.
func TestProbationsCompareWithThePresentSet(t *testing.T) {
	w := newWorkbench(t)
	f := w.follower(func(o *Options) { o.Probations = reflection.NewProbations(w.clock) })
	w.watch(f.plugins, w.newPlugin(w.clock.Now()))
	for n := range int64(2) {
		w.watch(f.revisions, w.newRevision(n+1))
	}
	w.install(f)
	previousStrips := func() bool {
		doc := document.New()
		doc.Reset(map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web",
			"labels": map[string]any{"other.example.com/x": "1"}}})
		_, err := f.onProbation["strip"].chains.Registry().Run(t.Context(), "Service", host.Outgoing, doc, &host.Env{Domain: "shop",
			Namespace: "shop"})
		w.must(err)
		return !doc.Root().View().Field("metadata").Field("labels").Field("other.example.com/x").Exists()
	}
	assert.False(t, previousStrips())
	w.install(f)
	settled := f.onProbation["strip"].chains
	w.install(f)
	assert.Same(t, settled, f.onProbation["strip"].chains, "nothing has changed")

	other := w.newPlugin(w.clock.Now())
	other.Name, other.UID, other.Status = "other", "2", plugins.ReflectionPluginStatus{ActiveRevision: "other-1"}
	r := w.newRevision(1)
	r.Name, r.OwnerReferences[0].Name, r.OwnerReferences[0].UID, r.Spec.Plugin = "other-1", "other", "2", "other"
	r.Spec.Config.Raw = []byte(`{"labels":["other.example.com/*"]}`)
	w.watch(f.plugins, other)
	w.watch(f.revisions, r)
	w.install(f)
	assert.True(t, previousStrips())
}

// TestStatesHaveNoPortsOfClients checks that the reported state of a plugin that cannot be read is the same in each
// attempt, although the port of the connection differs.
func TestStatesHaveNoPortsOfClients(t *testing.T) {
	w := newWorkbench(t)
	f := w.follower()
	state := func(port int) *pluginState {
		err := fmt.Errorf("getting it, %w", &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv6loopback, Port: port},
			Addr: &net.TCPAddr{IP: net.IPv6loopback, Port: 6443}, Err: syscall.ECONNRESET})
		return f.stateOf(&activePlugin{name: "strip", revision: "strip-1", spec: &plugins.PluginRevisionSpec{}},
			&source.Status{Name: "strip", Err: err}, nil)
	}
	assert.Equal(t, "getting it, read tcp [::1]:6443: connection reset by peer", state(54321).message)
	assert.Equal(t, state(54321).message, state(44444).message)
	assert.Equal(t, UnreadableReason, state(1).reason)
}

// TestCandidatesAreRehearsedAgain checks that a candidate is rehearsed again, and its report is renewed, when this
// virtual node starts or stops reflecting the shared kinds, and when another plugin has another active revision, even
// one for another provider.
func TestCandidatesAreRehearsedAgain(t *testing.T) {
	w := newWorkbench(t)
	var leads atomic.Bool
	f := w.follower(func(o *Options) { o.LeadsShared = leads.Load })
	var calls atomic.Int32
	w.showCandidate(f)
	changed := w.rehearsals(f, func(context.Context, reflection.PluginCandidate) (*plugins.PluginRehearsalResult, error) {
		return &plugins.PluginRehearsalResult{Objects: int64(calls.Add(1))}, nil
	})
	report := func(objects int64) (others string) {
		w.eventually(fmt.Sprintf("the rehearsal %d", objects), func() error {
			f.mu.Lock()
			defer f.mu.Unlock()
			got := f.others["strip-3"].Rehearsal
			if got == nil || got.Objects != objects {
				return fmt.Errorf("it is %+v", got)
			}
			others = got.OtherRevisions
			return nil
		})
		return others
	}
	alone := report(1)
	leads.Store(true)
	changed <- struct{}{}
	require.Equal(t, alone, report(2))
	changed <- struct{}{}
	changed <- struct{}{}
	require.EqualValues(t, 2, calls.Load(), "nothing has changed")

	other := w.newPlugin(w.clock.Now())
	other.Name, other.UID, other.Status = "other", "2", plugins.ReflectionPluginStatus{ActiveRevision: "other-1"}
	r := w.newRevision(1)
	r.Name, r.OwnerReferences[0].Name, r.OwnerReferences[0].UID, r.Spec.Plugin = "other-1", "other", "2", "other"
	r.Spec.Match = &plugins.PluginMatch{Providers: []string{"elsewhere"}}
	w.watch(f.revisions, r)
	w.watch(f.plugins, other)
	changed <- struct{}{}
	together := report(3)
	assert.NotEqual(t, alone, together)
	assert.Equal(t, pluginrevision.OthersKey([]*plugins.ReflectionPlugin{other}, "strip"), together)
}
