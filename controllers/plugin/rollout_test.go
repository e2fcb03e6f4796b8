// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/plugin"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/internal/pluginrevision"
)

// addNode creates the Node of a virtual node. The condition Ready of the Node has the given status, and last changed
// ago before now.
func addNode(t *testing.T, provider string, ready corev1.ConditionStatus, ago time.Duration) string {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("node%d", rand.Uint32()), Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: provider},
	}}
	cluster.Create(t, node)
	t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), node) })
	setNodeReady(t, node.Name, ready, ago)
	return node.Name
}

// setNodeReady sets the condition Ready of a Node.
func setNodeReady(t *testing.T, name string, status corev1.ConditionStatus, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago).UTC().Format(time.RFC3339)
	cluster.PatchStatus(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, fmt.Sprintf(
		`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test","lastTransitionTime":%q,"lastHeartbeatTime":%q}]}}`, status, at, at))
}

// reportEntry applies the entry of a virtual node to the status of a revision, as its virtual kubelet does.
func reportEntry(t *testing.T, revision string, entry plugins.VirtualNodePlugin) {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": plugins.GroupVersion.String(), "kind": plugins.PluginRevisionKind, "metadata": map[string]any{"name": revision},
		"status": map[string]any{"virtualNodes": []any{entry}},
	})
	require.NoError(t, err)
	object := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: revision}}
	patch := client.RawPatch(types.ApplyPatchType, body)
	require.NoError(t, cluster.Client.Status().Patch(t.Context(), object, patch, client.FieldOwner("virtual-kubelet-"+entry.Name), client.ForceOwnership))
}

// reportState reports the state of a revision on a virtual node.
func reportState(t *testing.T, revision, node string, state plugins.PluginState, message string) {
	t.Helper()
	reportEntry(t, revision, plugins.VirtualNodePlugin{Name: node, State: state, Message: message})
}

// reportProven reports that the active revision of a plugin has passed its probation on a virtual node.
func reportProven(t *testing.T, p *plugins.ReflectionPlugin, node string) {
	t.Helper()
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	reportEntry(t, p.Status.ActiveRevision, plugins.VirtualNodePlugin{
		Name: node, State: plugins.ActivePlugin, PromotedAt: p.Status.PromotedAt, ActiveSince: &since,
	})
}

// reportRehearsal reports the rehearsal of a revision on a virtual node.
func reportRehearsal(t *testing.T, revision, node string, result plugins.PluginRehearsalResult) {
	t.Helper()
	reportEntry(t, revision, plugins.VirtualNodePlugin{Name: node, State: plugins.StandbyPlugin, Rehearsal: &result})
}

// awaitActive waits until the revision is active. If revision is empty, it waits until no revision is active.
func awaitActive(t *testing.T, p *plugins.ReflectionPlugin, revision string) *plugins.ReflectionPlugin {
	t.Helper()
	now := &plugins.ReflectionPlugin{}
	controllertest.Eventually(t, fmt.Sprintf("revision %q to be active", revision), func() error {
		cluster.Get(t, now, "", p.Name)
		if now.Status.ActiveRevision != revision {
			return fmt.Errorf("%q is active, the conditions are %+v", now.Status.ActiveRevision, now.Status.Conditions)
		}
		return nil
	})
	return now
}

// awaitSomeActive waits until a revision is active.
func awaitSomeActive(t *testing.T, p *plugins.ReflectionPlugin) *plugins.ReflectionPlugin {
	t.Helper()
	now := &plugins.ReflectionPlugin{}
	controllertest.Eventually(t, "an active revision", func() error {
		cluster.Get(t, now, "", p.Name)
		if now.Status.ActiveRevision == "" {
			return fmt.Errorf("the conditions are %+v", now.Status.Conditions)
		}
		return nil
	})
	return now
}

// declareRehearsed creates a plugin that is rehearsed, and waits for its candidate.
func declareRehearsed(t *testing.T, change func(*plugins.ReflectionPluginSpec)) *plugins.ReflectionPlugin {
	t.Helper()
	p := declare(t, assemble(t, manifest, "", hook), func(s *plugins.ReflectionPluginSpec) {
		s.Rollout.Strategy = plugins.RehearseRollout
		if change != nil {
			change(s)
		}
	})
	return awaitCandidate(t, p, "")
}

// awaitCandidate waits for a candidate other than before.
func awaitCandidate(t *testing.T, p *plugins.ReflectionPlugin, before string) *plugins.ReflectionPlugin {
	t.Helper()
	now := &plugins.ReflectionPlugin{}
	controllertest.Eventually(t, "a candidate", func() error {
		cluster.Get(t, now, "", p.Name)
		if now.Status.CandidateRevision == "" || now.Status.CandidateRevision == before {
			return fmt.Errorf("the status is %+v", now.Status)
		}
		return nil
	})
	return now
}

// changeConfig changes the configuration of the plugin, which results in another revision.
func changeConfig(t *testing.T, p *plugins.ReflectionPlugin, size int) {
	t.Helper()
	cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"config":{"size":%d}}}`, size))
}

func approve(t *testing.T, p *plugins.ReflectionPlugin, revision string) {
	t.Helper()
	cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"rollout":{"rehearsal":{"approved":%q}}}}`, revision))
}

// TestARehearsedRevisionIsPromoted checks that a candidate becomes active when all virtual nodes have reported about it
// and the limits are not exceeded, and that the plugin is ready when all reachable virtual nodes run the revision. The
// report of an unreachable virtual node is needed, because the candidate was only just created.
func TestARehearsedRevisionIsPromoted(t *testing.T) {
	manager := start(t, func(o *plugin.Options) { o.Recheck = 100 * time.Millisecond })
	a, b := addNode(t, "milan", corev1.ConditionTrue, time.Hour), addNode(t, "turin", corev1.ConditionTrue, time.Hour)
	away := addNode(t, "bari", corev1.ConditionUnknown, time.Minute)
	p := declareRehearsed(t, nil)
	first := p.Status.CandidateRevision
	await(t, p, plugins.RehearsedCondition, metav1.ConditionUnknown, "Rehearsing")
	await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "Rehearsing")

	reportRehearsal(t, first, a, plugins.PluginRehearsalResult{Objects: 10, Changed: 10})
	reportRehearsal(t, first, b, plugins.PluginRehearsalResult{Objects: 5, Unchanged: 5, Against: "another"})
	controllertest.Eventually(t, "the missing reports to be named", func() error {
		cluster.Get(t, p, "", p.Name)
		names := []string{away, b}
		slices.Sort(names)
		if text := message(p, plugins.RehearsedCondition); text != fmt.Sprintf("revision %s is being rehearsed, waiting for the reports of %s, %s", first, names[0], names[1]) {
			return fmt.Errorf("the message is %q", text)
		}
		return nil
	})
	reportRehearsal(t, first, b, plugins.PluginRehearsalResult{Objects: 5, Unchanged: 5})
	// The report of the unreachable virtual node is still awaited, because the revision was only just created.
	p = await(t, p, plugins.RehearsedCondition, metav1.ConditionUnknown, "Rehearsing")
	assert.Empty(t, p.Status.ActiveRevision)
	reportRehearsal(t, first, away, plugins.PluginRehearsalResult{})
	p = awaitActive(t, p, first)
	assert.NotNil(t, p.Status.PromotedAt)
	assert.Empty(t, p.Status.CandidateRevision)
	rehearsed := await(t, p, plugins.RehearsedCondition, metav1.ConditionTrue, "Rehearsed")
	assert.Equal(t, fmt.Sprintf("revision %s changes 10, removes 0 and fails on 0 of 15 objects on 3 virtual nodes, within the limits", first), message(rehearsed, plugins.RehearsedCondition))
	assert.Equal(t, "revision "+first+" is active", cluster.AwaitEvent(t, installation, plugins.ReflectionPluginKind, p.Name, "Promoted").Note)

	await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "Loading")
	reportState(t, first, a, plugins.ActivePlugin, "")
	reportState(t, first, b, plugins.FailedPlugin, "the module is not there")
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "Failed")
	assert.Contains(t, message(p, plugins.ReadyCondition), b+": the module is not there")
	reportState(t, first, b, plugins.ActivePlugin, "")
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "Active")
	assert.Equal(t, "2/3", p.Status.Nodes)
	setNodeReady(t, away, corev1.ConditionTrue, 0)
	await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "Loading")
	reportState(t, first, away, plugins.ActivePlugin, "")
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "Active")
	assert.Equal(t, "3/3", p.Status.Nodes)

	// Nothing is written while nothing changes.
	before, reconciled := len(manager.Writes.About("/plugins.refract.io/")), reconciliations(t)
	controllertest.Eventually(t, "ten more reconciliations", func() error {
		if n := reconciliations(t) - reconciled; n < 10 {
			return fmt.Errorf("there were %v", n)
		}
		return nil
	})
	assert.Len(t, manager.Writes.About("/plugins.refract.io/"), before, "writes of an idle plugin")

	// A virtual node that no longer exists must not count, and its entry must be removed.
	require.NoError(t, cluster.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: away}}))
	revision := &plugins.PluginRevision{}
	controllertest.Eventually(t, "its entry to be removed", func() error {
		cluster.Get(t, revision, "", first)
		cluster.Get(t, p, "", p.Name)
		if len(revision.Status.VirtualNodes) != 2 || p.Status.Nodes != "2/2" {
			return fmt.Errorf("%s runs it, the entries are %+v", p.Status.Nodes, revision.Status.VirtualNodes)
		}
		return nil
	})
	reportState(t, first, a, plugins.ActivePlugin, "still its own entry")
}

// TestWhatExceedsTheLimitsWaitsForApproval checks that a candidate that exceeds a limit waits for its approval, and
// that the message of the condition names the exceeded limit.
func TestWhatExceedsTheLimitsWaitsForApproval(t *testing.T) {
	start(t)
	a, b := addNode(t, "milan", corev1.ConditionTrue, time.Hour), addNode(t, "turin", corev1.ConditionTrue, time.Hour)
	limit := int32(20)
	for name, c := range map[string]struct {
		rehearsal plugins.PluginRehearsal
		result    plugins.PluginRehearsalResult // result on one virtual node
		state     plugins.PluginState
		reason    string
		message   string
	}{
		"changes":           {plugins.PluginRehearsal{MaxChangedPercent: &limit}, plugins.PluginRehearsalResult{Objects: 100, Changed: 41, Unchanged: 59}, "", "WaitingForApproval", "changes 41 of 120 objects (34.2 %, limit 20 %). See refractctl plugin status "},
		"removals":          {plugins.PluginRehearsal{MaxRemoved: 1}, plugins.PluginRehearsalResult{Objects: 100, Removed: 2}, "", "WaitingForApproval", "removes the copies of 2 of 120 objects (limit 1)"},
		"errors":            {plugins.PluginRehearsal{}, plugins.PluginRehearsalResult{Objects: 100, Errors: 1, Removed: 1}, "", "WaitingForApproval", "removes the copies of 1 of 120 objects (limit 0), fails on 1 of 120 objects (limit 0)"},
		"not deterministic": {plugins.PluginRehearsal{}, plugins.PluginRehearsalResult{Objects: 100, NotDeterministic: 3}, "", "NotDeterministic", "for 3 of 120 objects"},
		"manual":            {plugins.PluginRehearsal{Approval: plugins.ManualApproval}, plugins.PluginRehearsalResult{Objects: 100, Unchanged: 100}, "", "WaitingForApproval", "spec.rollout.rehearsal.approval is Manual"},
		"does not load":     {plugins.PluginRehearsal{}, plugins.PluginRehearsalResult{}, plugins.FailedPlugin, "Failed", "does not load on virtual node " + a + ": out of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			p := declareRehearsed(t, func(s *plugins.ReflectionPluginSpec) { s.Rollout.Rehearsal = &c.rehearsal })
			candidate := p.Status.CandidateRevision
			reportRehearsal(t, candidate, b, plugins.PluginRehearsalResult{Objects: 20, Unchanged: 20})
			if c.state != "" {
				reportState(t, candidate, a, c.state, "out of memory")
			} else {
				reportRehearsal(t, candidate, a, c.result)
			}
			p = await(t, p, plugins.RehearsedCondition, metav1.ConditionFalse, c.reason)
			assert.Contains(t, message(p, plugins.RehearsedCondition), c.message)
			assert.Contains(t, message(p, plugins.RehearsedCondition), "refractctl plugin approve "+p.Name)
			assert.Empty(t, p.Status.ActiveRevision)
			await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, c.reason)
			cluster.AwaitEvent(t, installation, plugins.ReflectionPluginKind, p.Name, c.reason)
			approve(t, p, candidate)
			awaitActive(t, p, candidate)
			await(t, p, plugins.RehearsedCondition, metav1.ConditionTrue, "Approved")
		})
	}
}

// TestTheProvidersOfBothRevisionsRehearse checks that a rehearsal needs the reports of the virtual nodes whose provider
// matches the candidate or the active revision.
func TestTheProvidersOfBothRevisionsRehearse(t *testing.T) {
	start(t)
	milan, turin := addNode(t, "milan", corev1.ConditionTrue, time.Hour), addNode(t, "turin", corev1.ConditionTrue, time.Hour)
	addNode(t, "bari", corev1.ConditionTrue, time.Hour)
	p := declareRehearsed(t, func(s *plugins.ReflectionPluginSpec) { s.Match = &plugins.PluginMatch{Providers: []string{"milan"}} })
	first := p.Status.CandidateRevision
	reportRehearsal(t, first, milan, plugins.PluginRehearsalResult{Objects: 1})
	p = awaitActive(t, p, first)
	reportState(t, first, milan, plugins.ActivePlugin, "")
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "Active")
	assert.Equal(t, "1/1", p.Status.Nodes)
	cluster.Patch(t, p, `{"spec":{"match":{"providers":["turin"]}}}`)
	p = awaitCandidate(t, p, "")
	second := p.Status.CandidateRevision
	reportRehearsal(t, second, turin, plugins.PluginRehearsalResult{Objects: 1, Against: first})
	controllertest.Eventually(t, "the other provider to be waited for", func() error {
		cluster.Get(t, p, "", p.Name)
		if text := message(p, plugins.RehearsedCondition); text != fmt.Sprintf("revision %s is being rehearsed, waiting for the reports of %s", second, milan) {
			return fmt.Errorf("the message is %q", text)
		}
		return nil
	})
	reportRehearsal(t, second, milan, plugins.PluginRehearsalResult{Objects: 1, Against: first})
	awaitActive(t, p, second)
}

// TestARolledBackRevisionIsRejected checks that the controller manager rolls back a revision on all virtual nodes if
// one virtual node has rolled it back, and that neither a restart of the controller manager nor an approval from before
// the rollback makes the revision active again.
func TestARolledBackRevisionIsRejected(t *testing.T) {
	manager := start(t)
	a, b := addNode(t, "milan", corev1.ConditionTrue, time.Hour), addNode(t, "turin", corev1.ConditionTrue, time.Hour)
	p := declareRehearsed(t, func(s *plugins.ReflectionPluginSpec) {
		s.Rollout.Rehearsal = &plugins.PluginRehearsal{Approval: plugins.ManualApproval}
	})
	good := p.Status.CandidateRevision
	approve(t, p, good)
	p = awaitActive(t, p, good)
	reportProven(t, p, a)
	reportProven(t, p, b)
	changeConfig(t, p, 2)
	p = awaitCandidate(t, p, "")
	bad := p.Status.CandidateRevision
	approve(t, p, bad)
	p = awaitActive(t, p, bad)
	assert.Equal(t, good, p.Status.PreviousRevision)

	reportState(t, bad, b, plugins.RolledBackPlugin, "5 of 100 evaluations failed (limit 1 %)")
	p = awaitActive(t, p, good)
	assert.Equal(t, bad, p.Status.RejectedRevision)
	assert.Equal(t, bad, p.Status.OverruledRevision)
	assert.Empty(t, p.Status.PreviousRevision, "a rollback does not lead to the revision that failed")
	assert.Nil(t, p.Status.PromotedAt)
	p = await(t, p, plugins.RehearsedCondition, metav1.ConditionFalse, "RolledBack")
	assert.Contains(t, message(p, plugins.RehearsedCondition), fmt.Sprintf("revision %s was rolled back by virtual node %s: 5 of 100 evaluations failed (limit 1 %%)", bad, b))
	event := cluster.AwaitEvent(t, installation, plugins.ReflectionPluginKind, p.Name, "RolledBack")
	assert.Equal(t, corev1.EventTypeWarning, event.Type)
	assert.Contains(t, event.Note, "5 of 100")
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionTrue, "Active")
	assert.Empty(t, p.Status.CandidateRevision)

	// Neither a restart nor a change to another field of the spec activates the rolled-back revision again.
	manager.Stop(t)
	start(t)
	cluster.Patch(t, p, `{"spec":{"revisionHistoryLimit":1}}`)
	p = await(t, p, plugins.RehearsedCondition, metav1.ConditionFalse, "RolledBack")
	assert.Equal(t, good, p.Status.ActiveRevision)
	assert.Equal(t, bad, p.Status.OverruledRevision)

	// Once the approval is removed, another one counts, and the revision is not rolled back again.
	cluster.Patch(t, p, `{"spec":{"rollout":{"rehearsal":{"approved":null}}}}`)
	controllertest.Eventually(t, "the approval to be forgotten", func() error {
		cluster.Get(t, p, "", p.Name)
		if p.Status.OverruledRevision != "" {
			return fmt.Errorf("%s is overruled", p.Status.OverruledRevision)
		}
		return nil
	})
	approve(t, p, bad)
	p = awaitActive(t, p, bad)
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "RolledBack")
	assert.Equal(t, bad, p.Status.ActiveRevision)

	// Another configuration makes another revision, which is not rejected.
	changeConfig(t, p, 3)
	p = awaitCandidate(t, p, "")
	third := p.Status.CandidateRevision
	approve(t, p, third)
	awaitActive(t, p, third)
}

// TestAllRolledBackRevisionsStayRejected checks that all revisions that were rolled back stay rejected, and not only
// the last one. A source that returns to an earlier revision does not make it active again.
func TestAllRolledBackRevisionsStayRejected(t *testing.T) {
	start(t)
	a := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	p := declare(t, assemble(t, manifest, "", hook), nil)
	controllertest.Eventually(t, "the first revision to be active", func() error {
		if cluster.Get(t, p, "", p.Name); p.Status.ActiveRevision == "" {
			return fmt.Errorf("no revision is active")
		}
		return nil
	})
	first := p.Status.ActiveRevision
	reportProven(t, p, a)
	var failed []string
	for size := 2; size <= 3; size++ {
		changeConfig(t, p, size)
		controllertest.Eventually(t, "the next revision to be active", func() error {
			if cluster.Get(t, p, "", p.Name); p.Status.ActiveRevision == first {
				return fmt.Errorf("%s is active", first)
			}
			return nil
		})
		failed = append(failed, p.Status.ActiveRevision)
		reportState(t, p.Status.ActiveRevision, a, plugins.RolledBackPlugin, "all failed")
		p = awaitActive(t, p, first)
	}
	assert.Equal(t, failed[1], p.Status.RejectedRevision)
	assert.Equal(t, failed[:1], p.Status.EarlierRejectedRevisions)

	changeConfig(t, p, 2)
	controllertest.Eventually(t, "the condition to name the earlier revision", func() error {
		cluster.Get(t, p, "", p.Name)
		if text := message(p, plugins.RehearsedCondition); !strings.Contains(text, "revision "+failed[0]+" was rolled back before") {
			return fmt.Errorf("the message is %q", text)
		}
		return nil
	})
	assert.Equal(t, first, p.Status.ActiveRevision)
}

// promoteNext changes the settings of the plugin, and approves its revision.
func promoteNext(t *testing.T, p *plugins.ReflectionPlugin, settings string) *plugins.ReflectionPlugin {
	t.Helper()
	cluster.Patch(t, p, `{"spec":`+settings+`}`)
	p = awaitCandidate(t, p, "")
	approve(t, p, p.Status.CandidateRevision)
	return awaitActive(t, p, p.Status.CandidateRevision)
}

// TestUnprovenRevisionsAreNotGoneBackTo checks that the previous revision stays the proven one after a second promotion
// during a probation, and that a failure restores it. Otherwise objects that the first revision skips would count as
// already skipped. A virtual node that is not reachable has not passed the probation.
func TestUnprovenRevisionsAreNotGoneBackTo(t *testing.T) {
	start(t)
	a, away := addNode(t, "milan", corev1.ConditionTrue, time.Hour), addNode(t, "turin", corev1.ConditionUnknown, time.Hour)
	p := declareRehearsed(t, nil)
	first := p.Status.CandidateRevision
	approve(t, p, first)
	p = awaitActive(t, p, first)
	reportProven(t, p, a)
	reportProven(t, p, away)
	p = promoteNext(t, p, `{"config":{"size":2}}`)
	assert.Equal(t, first, p.Status.PreviousRevision)
	reportProven(t, p, a)
	p = promoteNext(t, p, `{"config":{"size":3}}`)
	assert.Equal(t, first, p.Status.PreviousRevision, "the second one is not proven on "+away)
	assert.False(t, p.Status.PreviousUnproven)
	p = promoteNext(t, p, `{"match":{"providers":["bari"]}}`)
	p = promoteNext(t, p, `{"match":null,"config":{"size":4}}`)
	assert.Equal(t, first, p.Status.PreviousRevision, "a revision for no virtual node has proven nothing")
	failing := p.Status.ActiveRevision
	reportState(t, failing, a, plugins.RolledBackPlugin, "all failed")
	p = awaitActive(t, p, first)
	assert.Equal(t, failing, p.Status.RejectedRevision)
	assert.Empty(t, p.Status.PreviousRevision)
	assert.Nil(t, p.Status.PromotedAt)
}

// TestRestoredRevisionsKeepTheirProbation checks that a revision that is restored before its probation is over is on
// probation again.
func TestRestoredRevisionsKeepTheirProbation(t *testing.T) {
	start(t)
	a := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	p := declareRehearsed(t, nil)
	first := p.Status.CandidateRevision
	approve(t, p, first)
	p = promoteNext(t, awaitActive(t, p, first), `{"config":{"size":2}}`)
	assert.Equal(t, first, p.Status.PreviousRevision)
	assert.True(t, p.Status.PreviousUnproven)
	reportState(t, p.Status.ActiveRevision, a, plugins.RolledBackPlugin, "all failed")
	p = awaitActive(t, p, first)
	assert.Empty(t, p.Status.PreviousRevision)
	assert.False(t, p.Status.PreviousUnproven)
	assert.NotNil(t, p.Status.PromotedAt)
}

// othersKey returns the key of the active revisions of all plugins but one, with another revision for one of them.
func othersKey(t *testing.T, plugin string, active map[string]string) string {
	t.Helper()
	all := &plugins.ReflectionPluginList{}
	require.NoError(t, cluster.Client.List(t.Context(), all))
	var found []*plugins.ReflectionPlugin
	for i := range all.Items {
		p := &all.Items[i]
		if revision := active[p.Name]; revision != "" {
			p.Status.ActiveRevision = revision
		}
		found = append(found, p)
	}
	return pluginrevision.OthersKey(found, plugin)
}

// TestCandidatesAreRehearsedTogether checks that a report from before the promotion of another plugin does not count,
// because the chains now contain both plugins.
func TestCandidatesAreRehearsedTogether(t *testing.T) {
	start(t, func(o *plugin.Options) { o.Recheck = time.Hour })
	// A Node that is ready would become unready, because it has no kubelet, and the plugins would be reconciled.
	a := addNode(t, "milan", corev1.ConditionUnknown, time.Minute)
	p, q := declareRehearsed(t, nil), declareRehearsed(t, nil)
	first, second := p.Status.CandidateRevision, q.Status.CandidateRevision
	before := othersKey(t, q.Name, nil)
	reportRehearsal(t, first, a, plugins.PluginRehearsalResult{Objects: 1, OtherRevisions: othersKey(t, p.Name, nil)})
	awaitActive(t, p, first)
	reportInVain := func(revision, against, others string) {
		for objects := range int64(5) {
			reconciled := reconciliations(t)
			reportRehearsal(t, revision, a, plugins.PluginRehearsalResult{Objects: objects, Against: against, OtherRevisions: others})
			controllertest.Eventually(t, "the report to be read", func() error {
				if reconciliations(t) == reconciled {
					return errors.New("nothing was reconciled")
				}
				return nil
			})
		}
	}
	reportInVain(second, "", before)
	q = await(t, q, plugins.RehearsedCondition, metav1.ConditionUnknown, "Rehearsing")
	assert.Empty(t, q.Status.ActiveRevision)
	assert.Contains(t, message(q, plugins.RehearsedCondition), "waiting for the reports of "+a)
	reportRehearsal(t, second, a, plugins.PluginRehearsalResult{Objects: 1, OtherRevisions: othersKey(t, q.Name, nil)})
	awaitActive(t, q, second)

	// A virtual kubelet may know of the promotion before the controller manager.
	changeConfig(t, p, 2)
	changeConfig(t, q, 2)
	p, q = awaitCandidate(t, p, ""), awaitCandidate(t, q, "")
	third, fourth := p.Status.CandidateRevision, q.Status.CandidateRevision
	reportInVain(fourth, second, othersKey(t, q.Name, map[string]string{p.Name: third}))
	last, quiet := reconciliations(t), time.Now()
	controllertest.Eventually(t, "the reports to be read", func() error {
		if now := reconciliations(t); now != last || time.Since(quiet) < time.Second {
			if now != last {
				last, quiet = now, time.Now()
			}
			return errors.New("some may be read still")
		}
		return nil
	})
	reportRehearsal(t, third, a, plugins.PluginRehearsalResult{Against: first, OtherRevisions: othersKey(t, p.Name, nil)})
	awaitActive(t, p, third)
	awaitActive(t, q, fourth)
}

// TestARollbackOverrulesAPin checks that a rollback overrules a pin that was set before it.
func TestARollbackOverrulesAPin(t *testing.T) {
	start(t)
	a := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	p := declareRehearsed(t, nil)
	first := p.Status.CandidateRevision
	approve(t, p, first)
	p = awaitActive(t, p, first)
	changeConfig(t, p, 2)
	p = awaitCandidate(t, p, "")
	second := p.Status.CandidateRevision
	cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, second))
	p = awaitActive(t, p, second)
	await(t, p, plugins.RehearsedCondition, metav1.ConditionUnknown, "Pinned")
	// Paused plugins keep the active revision.
	cluster.Patch(t, p, `{"spec":{"paused":true}}`)
	reportState(t, second, a, plugins.RolledBackPlugin, "all failed")
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "RolledBack")
	assert.Equal(t, second, p.Status.ActiveRevision)
	cluster.Patch(t, p, `{"spec":{"paused":false}}`)
	p = awaitActive(t, p, first)
	assert.Equal(t, second, p.Status.OverruledRevision)
	assert.Equal(t, second, p.Status.RejectedRevision)
	assert.Equal(t, "RolledBack", apimeta.FindStatusCondition(p.Status.Conditions, plugins.RehearsedCondition).Reason)
}

// TestTheFirstRevisionIsNotRolledBack checks that the first revision of a plugin stays active, whatever a virtual node
// reports. Without an active revision, the objects of all virtual nodes would be reflected without the plugin.
func TestTheFirstRevisionIsNotRolledBack(t *testing.T) {
	start(t)
	a := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	p := declareRehearsed(t, nil)
	first := p.Status.CandidateRevision
	approve(t, p, first)
	p = awaitActive(t, p, first)
	reportState(t, first, a, plugins.RolledBackPlugin, "all failed")
	p = await(t, p, plugins.ReadyCondition, metav1.ConditionFalse, "RolledBack")
	assert.Equal(t, first, p.Status.ActiveRevision)
	assert.Empty(t, p.Status.RejectedRevision)
}

// TestANodeDoesNotStopUpdates checks that an active plugin accepts another revision although a virtual node reports a
// plugin of the same name in its folder.
func TestANodeDoesNotStopUpdates(t *testing.T) {
	start(t)
	node := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	p := declareRehearsed(t, nil)
	first := p.Status.CandidateRevision
	approve(t, p, first)
	p = awaitActive(t, p, first)
	text, err := folderplugins.Encode([]folderplugins.Plugin{{Name: p.Name, State: "Loaded", IsRunning: true}})
	require.NoError(t, err)
	cluster.Patch(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, folderplugins.Annotation, text))
	changeConfig(t, p, 2)
	p = awaitCandidate(t, p, "")
	assert.NotEqual(t, first, p.Status.CandidateRevision)
}

// awaitMetric waits until the metric of a plugin is want for each of its states, and 0 for the states that are not in
// want.
func awaitMetric(t *testing.T, manager *controllertest.Manager, p *plugins.ReflectionPlugin, want map[string]float64) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("the states %v", want), func() error {
		for _, state := range []string{"Ready", "NotReady", "Refused", "WaitingForApproval", "RolledBack"} {
			if got := manager.Metric(t, "refract_declared_plugins", "plugin", p.Name, "state", state); got != want[state] {
				return fmt.Errorf("%s is %v", state, got)
			}
		}
		return nil
	})
}

// TestEverySettingIsRehearsed checks that a change of any setting of a revision makes a candidate that waits, and that
// the active revision stays. Changes of the rollout make none.
func TestEverySettingIsRehearsed(t *testing.T) {
	start(t)
	wasm := assemble(t, strings.Replace(manifest, `["Service"]`, `["Service","ConfigMap"]`, 1), "", hook)
	p := declare(t, wasm, func(s *plugins.ReflectionPluginSpec) {
		s.Rollout = plugins.PluginRollout{
			Strategy: plugins.RehearseRollout, Rehearsal: &plugins.PluginRehearsal{Approval: plugins.ManualApproval},
		}
	})
	active := awaitCandidate(t, p, "").Status.CandidateRevision
	approve(t, p, active)
	awaitActive(t, p, active)
	before := ""
	for _, spec := range []string{
		`"kinds":["Service","ConfigMap"]`, `"priority":-5`, `"replaces":"service"`, `"config":{"size":7}`,
		`"writes":["metadata.labels.team"]`, `"capabilities":["skip"]`, `"limits":{"fuel":1000000}`, `"failurePolicy":"Ignore"`,
		`"match":{"namespaceSelector":{"matchLabels":{"team":"a"}}}`, `"match":{"objectSelector":{"matchLabels":{"team":"a"}}}`,
		`"match":{"providers":["milan"]}`,
	} {
		cluster.Patch(t, p, `{"spec":{`+spec+`}}`)
		before = awaitCandidate(t, p, before).Status.CandidateRevision
		now := await(t, p, plugins.RehearsedCondition, metav1.ConditionFalse, "WaitingForApproval")
		assert.Equal(t, active, now.Status.ActiveRevision, spec)
	}
	for _, spec := range []string{`"revisionHistoryLimit":7`, `"rollout":{"maxFailedPercent":9}`} {
		cluster.Patch(t, p, `{"spec":{`+spec+`}}`)
		now := await(t, p, plugins.RehearsedCondition, metav1.ConditionFalse, "WaitingForApproval")
		assert.Equal(t, before, now.Status.CandidateRevision, spec)
	}
}

// TestChangesThatAreTakenBackEndTheirAlerts checks that the condition Rehearsed, and with it the metric, is no longer
// about a revision that waits for an approval or was rolled back after the plugin was changed back to the active
// revision, or the active revision was pinned. A condition about the active revision itself is kept.
func TestChangesThatAreTakenBackEndTheirAlerts(t *testing.T) {
	manager := start(t)
	node := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	p := declareRehearsed(t, nil)
	good := p.Status.CandidateRevision
	reportRehearsal(t, good, node, plugins.PluginRehearsalResult{Objects: 1})
	p = awaitActive(t, p, good)
	reportProven(t, p, node)
	changeBack := func() { cluster.Patch(t, p, `{"spec":{"revision":null,"config":null}}`) }
	wait := func(size int) string {
		t.Helper()
		changeConfig(t, p, size)
		candidate := awaitCandidate(t, p, "").Status.CandidateRevision
		reportRehearsal(t, candidate, node, plugins.PluginRehearsalResult{Objects: 1, Errors: 1, Against: good})
		await(t, p, plugins.RehearsedCondition, metav1.ConditionFalse, "WaitingForApproval")
		awaitMetric(t, manager, p, map[string]float64{"Ready": 1, "WaitingForApproval": 1})
		return candidate
	}
	cluster.Patch(t, p, `{"spec":{"revisionHistoryLimit":4}}`)
	await(t, p, plugins.RehearsedCondition, metav1.ConditionTrue, "Rehearsed")

	wait(2)
	changeBack()
	now := await(t, p, plugins.RehearsedCondition, metav1.ConditionUnknown, "NoCandidate")
	assert.Contains(t, message(now, plugins.RehearsedCondition), "revision "+good+", which is active")
	assert.Empty(t, now.Status.CandidateRevision)
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1})

	wait(3)
	cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"revision":%q}}`, good))
	await(t, p, plugins.RehearsedCondition, metav1.ConditionUnknown, "Pinned")
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1})
	changeBack()
	await(t, p, plugins.RehearsedCondition, metav1.ConditionUnknown, "NoCandidate")

	// A change that is refused replaces the candidate. Its approval would have no effect.
	for condition, change := range map[string]string{
		plugins.AcceptedCondition: `{"spec":{"config":{"size":"large"}}}`,
		plugins.FetchedCondition:  `{"spec":{"source":{"configMap":{"key":"missing"}}}}`,
	} {
		wait(5)
		before := p.DeepCopy()
		cluster.Patch(t, p, change)
		controllertest.Eventually(t, condition+" to be False", func() error {
			cluster.Get(t, now, "", p.Name)
			if !apimeta.IsStatusConditionFalse(now.Status.Conditions, condition) {
				return fmt.Errorf("the conditions are %+v", now.Status.Conditions)
			}
			return nil
		})
		now = await(t, p, plugins.RehearsedCondition, metav1.ConditionUnknown, "NoCandidate")
		assert.Empty(t, now.Status.CandidateRevision)
		cluster.Patch(t, p, fmt.Sprintf(`{"spec":{"config":null,"source":{"configMap":{"key":%q}}}}`, before.Spec.Source.ConfigMap.Key))
	}

	bad := wait(4)
	approve(t, p, bad)
	awaitActive(t, p, bad)
	reportState(t, bad, node, plugins.RolledBackPlugin, "it failed")
	awaitActive(t, p, good)
	await(t, p, plugins.RehearsedCondition, metav1.ConditionFalse, "RolledBack")
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1, "RolledBack": 1})
	changeBack()
	now = await(t, p, plugins.RehearsedCondition, metav1.ConditionUnknown, "NoCandidate")
	assert.Equal(t, bad, now.Status.RejectedRevision)
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1})
}

// TestStatesOfPluginsAreMetrics checks that the metric of a plugin has the states that the alerts of the chart select.
func TestStatesOfPluginsAreMetrics(t *testing.T) {
	manager := start(t)
	a := addNode(t, "milan", corev1.ConditionTrue, time.Hour)
	p := declareRehearsed(t, nil)
	first := p.Status.CandidateRevision
	reportRehearsal(t, first, a, plugins.PluginRehearsalResult{Objects: 1, Errors: 1})
	awaitMetric(t, manager, p, map[string]float64{"WaitingForApproval": 1})
	approve(t, p, first)
	awaitMetric(t, manager, p, map[string]float64{"NotReady": 1})
	reportState(t, first, a, plugins.ActivePlugin, "")
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1})
	cluster.Patch(t, p, `{"spec":{"writes":["spec"]}}`)
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1, "Refused": 1})
	cluster.Patch(t, p, `{"spec":{"writes":null}}`)
	// A first revision is not rolled back.
	reportState(t, first, a, plugins.RolledBackPlugin, "it failed")
	awaitMetric(t, manager, p, map[string]float64{"NotReady": 1})
	reportState(t, first, a, plugins.ActivePlugin, "")
	changeConfig(t, p, 2)
	p = awaitCandidate(t, p, "")
	second := p.Status.CandidateRevision
	approve(t, p, second)
	p = awaitActive(t, p, second)
	reportState(t, second, a, plugins.RolledBackPlugin, "it failed")
	awaitMetric(t, manager, p, map[string]float64{"Ready": 1, "RolledBack": 1})
}

// TestServersThatDoNotAnswer checks that other plugins are reconciled while servers do not answer.
func TestServersThatDoNotAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	var connected atomic.Int32
	go func() {
		var silent []net.Conn // a connection that nothing refers to would be closed
		for {
			connection, err := listener.Accept()
			if err != nil {
				break
			}
			silent = append(silent, connection)
			connected.Add(1)
		}
		for _, connection := range silent {
			_ = connection.Close()
		}
	}()
	start(t, func(o *plugin.Options) { o.Sources.StallTimeout = time.Hour })
	for i := range 6 {
		p := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("silent-%d", i)}}
		p.Spec.Kinds = []string{"Service"}
		p.Spec.Source.OCI = &plugins.OCISource{Image: listener.Addr().String() + "/m:1"}
		cluster.Create(t, p)
		t.Cleanup(func() { _ = cluster.Client.Delete(context.Background(), p) })
	}
	controllertest.Eventually(t, "servers that do not answer", func() error {
		if n := connected.Load(); n < 3 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
	await(t, declare(t, assemble(t, manifest, "", hook), nil), plugins.AcceptedCondition, metav1.ConditionTrue, "Accepted")
}
