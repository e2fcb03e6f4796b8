// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	commands "github.com/refract-project/refract/cmd/refractctl/cli/plugins"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/test/support/testenv"
)

// declaredPluginOf creates a ReflectionPlugin.
func declaredPluginOf(t *testing.T, name string, change func(*plugins.ReflectionPluginSpec)) *plugins.ReflectionPlugin {
	t.Helper()
	p := &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Kinds = []string{"Service"}
	p.Spec.Source.ConfigMap = &plugins.ConfigMapSource{Name: name, Key: "m.wasm"}
	if change != nil {
		change(&p.Spec)
	}
	create(t, p)
	t.Cleanup(func() { _ = admin(t).Delete(context.Background(), p) })
	return p
}

// revisionOf creates a revision of a plugin with the plugin's settings. Its name is NAME-NUMBER.
func revisionOf(t *testing.T, p *plugins.ReflectionPlugin, number int64, entries ...plugins.VirtualNodePlugin) string {
	t.Helper()
	isController := true
	r := &plugins.PluginRevision{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", p.Name, number), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: plugins.GroupVersion.String(), Kind: plugins.ReflectionPluginKind, Name: p.Name, UID: p.UID, Controller: &isController,
		}}},
		Spec: plugins.PluginRevisionSpec{
			Plugin: p.Name, Number: number, SHA256: strings.Repeat("0", 64), Size: 1, Parts: 1, Source: "configMap default/x/m.wasm", PolicyName: "configMap/x",
			Manifest: plugins.PluginManifest{Version: "1.0", Kinds: []string{"*"}, Hooks: []string{"outgoing"}}, PluginSettings: p.Spec.PluginSettings,
		},
	}
	create(t, r)
	t.Cleanup(func() { _ = admin(t).Delete(context.Background(), r) })
	r.Status.VirtualNodes = entries
	require.NoError(t, admin(t).Status().Update(t.Context(), r))
	return r.Name
}

func setPluginStatus(t *testing.T, p *plugins.ReflectionPlugin, status plugins.ReflectionPluginStatus) {
	t.Helper()
	p.Status = status
	require.NoError(t, admin(t).Status().Update(t.Context(), p))
}

func specOf(t *testing.T, name string) plugins.ReflectionPluginSpec {
	t.Helper()
	p := &plugins.ReflectionPlugin{}
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKey{Name: name}, p))
	return p.Spec
}

func TestApprovingShowsTheReportAndWritesOneField(t *testing.T) {
	p := declaredPluginOf(t, "approved", nil)
	revisionOf(t, p, 1)
	candidate := revisionOf(t, p, 2, plugins.VirtualNodePlugin{Name: "milan", State: plugins.StandbyPlugin, Rehearsal: &plugins.PluginRehearsalResult{
		Against: "approved-1", Objects: 120, Changed: 41, Unchanged: 79,
		Paths: []plugins.RehearsedPath{
			{Kind: "Service", Path: "metadata.labels.team", Objects: 40},
			{Kind: "Pod", Path: "spec.runtimeClassName", Objects: 3, NewPodsOnly: true},
		},
		Conflicts: []plugins.RehearsedConflict{
			{Kind: "Service", Path: "spec.type", Plugin: "later", Objects: 7},
			{Kind: "Service", Path: "spec.type", Plugin: "approved", Earlier: "first", Objects: 6},
		},
		Examples: []plugins.RehearsedObject{
			{Kind: "Service", Namespace: "shop", Name: "web", Outcome: plugins.ErrorOutcome, Message: "bad\x1b[31m\nline"},
		},
	}}, plugins.VirtualNodePlugin{Name: "turin", State: plugins.StandbyPlugin, Rehearsal: &plugins.PluginRehearsalResult{
		Against: "approved-1", Objects: 2, Changed: 2, Paths: []plugins.RehearsedPath{{Kind: "Service", Path: "metadata.labels.team", Objects: 2}},
		Conflicts: []plugins.RehearsedConflict{{Kind: "Service", Path: "spec.type", Plugin: "approved", Earlier: "first", Objects: 2}},
	}})

	_, _, err := refractctl(t, onCluster("plugin", "approve", "approved")...)
	require.ErrorContains(t, err, "has no revision to approve: none waits for it")
	assert.Equal(t, invocation.ExitFailed, invocation.ExitCode(err))

	setPluginStatus(t, p, plugins.ReflectionPluginStatus{ActiveRevision: "approved-1", CandidateRevision: candidate})
	out, progress, err := refractctl(t, onCluster("plugin", "approve", "approved")...)
	require.NoError(t, err)
	for _, want := range []string{"Rehearsal of approved-2", "metadata.labels.team", "new pods only", "later", "shop/web", `bad\u001b[31m line`} {
		assert.Contains(t, out, want)
	}
	assert.Regexp(t, `metadata\.labels\.team +Service +42`, out, "the sum of both virtual nodes")
	assert.Regexp(t, `spec\.type +Service +8 +first +approved\n`, out, "the sum of both virtual nodes")
	assert.Regexp(t, `spec\.type +Service +7 +approved +later\n`, out)
	assert.NotContains(t, out, "\x1b")
	assert.Equal(t, "approved: spec.rollout.rehearsal.approved of the ReflectionPlugin was set to approved-2. If the object comes from Git, change it there, too.\n", progress)
	assert.Equal(t, candidate, specOf(t, "approved").Rollout.Rehearsal.Approved)
	_, progress, err = refractctl(t, onCluster("plugin", "approve", "approved", "--revision="+candidate)...)
	require.NoError(t, err)
	assert.Contains(t, progress, "is approved-2 already")

	for flag, want := range map[string]string{"approved-1": "approved-1 is active", "approved-9": "has no revision approved-9, it has approved-2, approved-1"} {
		_, _, err = refractctl(t, onCluster("plugin", "approve", "approved", "--revision="+flag)...)
		require.ErrorContains(t, err, want)
	}
	_, _, err = refractctl(t, onCluster("plugin", "approve", "absent")...)
	require.ErrorContains(t, err, "there is no ReflectionPlugin absent")
	_, _, err = refractctl(t, onCluster("plugin", "approve")...)
	assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err))
}

// TestApprovingAgainAfterARollback checks that an approval from before a rollback is removed, and set again once the
// controller manager has observed the removal.
func TestApprovingAgainAfterARollback(t *testing.T) {
	p := declaredPluginOf(t, "again", func(s *plugins.ReflectionPluginSpec) {
		s.Rollout = plugins.PluginRollout{Strategy: plugins.RehearseRollout, Rehearsal: &plugins.PluginRehearsal{Approved: "again-2"}}
	})
	revisionOf(t, p, 1)
	revisionOf(t, p, 2)
	setPluginStatus(t, p, plugins.ReflectionPluginStatus{ActiveRevision: "again-1", RejectedRevision: "again-2", OverruledRevision: "again-2"})
	c, done := admin(t), make(chan error, 1)
	go func() { // acts as the controller manager
		done <- wait.PollUntilContextTimeout(t.Context(), tick, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
			now := &plugins.ReflectionPlugin{}
			if err := c.Get(ctx, client.ObjectKey{Name: "again"}, now); err != nil || now.Spec.Rollout.Rehearsal.Approved != "" {
				return false, err
			}
			return true, c.Status().Patch(ctx, now, client.RawPatch(types.MergePatchType, []byte(`{"status":{"overruledRevision":null}}`)))
		})
	}()
	_, _, err := refractctl(t, onCluster("plugin", "approve", "again")...)
	require.NoError(t, err)
	require.NoError(t, <-done)
	assert.Equal(t, "again-2", specOf(t, "again").Rollout.Rehearsal.Approved)
}

func TestRollingBackPinsARevision(t *testing.T) {
	p := declaredPluginOf(t, "pinned", func(s *plugins.ReflectionPluginSpec) { s.Rollout.Strategy = plugins.ImmediateRollout })
	_, _, err := refractctl(t, onCluster("plugin", "rollback", "pinned")...)
	require.ErrorContains(t, err, "has no previous revision to go back to")
	for n := range int64(4) {
		revisionOf(t, p, n+1)
	}
	setPluginStatus(t, p, plugins.ReflectionPluginStatus{ActiveRevision: "pinned-4", PreviousRevision: "pinned-2"})
	out, progress, err := refractctl(t, onCluster("plugin", "rollback", "pinned", "-o", "json")...)
	require.NoError(t, err, progress)
	var result struct {
		Succeeded bool     `json:"succeeded"`
		Steps     []string `json:"steps"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	assert.True(t, result.Succeeded)
	assert.Equal(t, "pinned-2", specOf(t, "pinned").Revision)
	_, progress, err = refractctl(t, onCluster("plugin", "undo", "pinned", "--to=pinned-1")...)
	require.NoError(t, err)
	assert.Contains(t, progress, "spec.revision of the ReflectionPlugin was set to pinned-1")
	assert.Equal(t, "pinned-1", specOf(t, "pinned").Revision)

	// If no previous revision is recorded, the user must name one: the others may never have been active.
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(p), p))
	setPluginStatus(t, p, plugins.ReflectionPluginStatus{ActiveRevision: "pinned-4", RejectedRevision: "pinned-3"})
	_, _, err = refractctl(t, onCluster("plugin", "rollback", "pinned")...)
	require.ErrorContains(t, err, "plugin pinned has no previous revision to go back to: name one with --to")
	_, _, err = refractctl(t, onCluster("plugin", "rollback", "pinned", "--to=pinned-2")...)
	require.NoError(t, err)
	assert.Equal(t, "pinned-2", specOf(t, "pinned").Revision)
	_, _, err = refractctl(t, onCluster("plugin", "approve", "pinned")...)
	require.ErrorContains(t, err, "run refractctl plugin unpin pinned first")
	_, progress, err = refractctl(t, onCluster("plugin", "unpin", "pinned")...)
	require.NoError(t, err)
	assert.Contains(t, progress, "spec.revision of the ReflectionPlugin was removed")
	assert.Empty(t, specOf(t, "pinned").Revision)
	_, _, err = refractctl(t, onCluster("plugin", "unpin", "pinned")...)
	require.ErrorContains(t, err, "spec.revision of plugin pinned is not set")
	_, _, err = refractctl(t, onCluster("plugin", "approve", "pinned")...)
	require.ErrorContains(t, err, "is Immediate")

	out, _, err = refractctl(t, onCluster("plugin", "status", "pinned")...)
	require.NoError(t, err)
	assert.Regexp(t, `pinned-4 +4 +1\.0 +active`, out)
	assert.Regexp(t, `pinned-3 +3 +1\.0 +rolled back`, out)
	out, _, err = refractctl(t, onCluster("plugin", "status", "pinned", "-o", "jsonpath={.revisions[0].name}")...)
	require.NoError(t, err)
	assert.Equal(t, "pinned-4", out)
}

// TestProbationsEndOnTheLastNode checks that the status shows the end of the probation on the virtual node on which it
// began last, and the virtual nodes on which it has not begun.
func TestProbationsEndOnTheLastNode(t *testing.T) {
	p := declaredPluginOf(t, "probation", nil)
	now := time.Now().Truncate(time.Second)
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	promoted := ago(15 * time.Minute) // the probation takes ten minutes
	entry := func(node string, of, since *metav1.Time) plugins.VirtualNodePlugin {
		return plugins.VirtualNodePlugin{Name: node, State: plugins.ActivePlugin, PromotedAt: of, ActiveSince: since}
	}
	revision := revisionOf(t, p, 1, entry("milan", promoted, promoted), entry("turin", promoted, ago(3*time.Minute)),
		entry("lodi", ago(time.Hour), ago(time.Minute))) // the last entry is about an earlier promotion
	setPluginStatus(t, p, plugins.ReflectionPluginStatus{ActiveRevision: revision, PromotedAt: promoted})
	out, _, err := refractctl(t, onCluster("plugin", "status", "probation")...)
	require.NoError(t, err)
	assert.Regexp(t, "In its probation until +"+now.Add(7*time.Minute).UTC().Format(time.RFC3339), out)
	assert.NotContains(t, out, "not begun")

	waiting := revisionOf(t, p, 2, entry("milan", promoted, promoted), entry("turin", promoted, nil))
	setPluginStatus(t, p, plugins.ReflectionPluginStatus{ActiveRevision: waiting, PromotedAt: promoted})
	out, _, err = refractctl(t, onCluster("plugin", "status", "probation")...)
	require.NoError(t, err)
	assert.Regexp(t, "Its probation has not begun on +turin\n", out)
	assert.NotContains(t, out, "In its probation until")

	over := revisionOf(t, p, 3, entry("milan", promoted, promoted))
	setPluginStatus(t, p, plugins.ReflectionPluginStatus{ActiveRevision: over, PromotedAt: promoted})
	out, _, err = refractctl(t, onCluster("plugin", "status", "probation")...)
	require.NoError(t, err)
	assert.NotContains(t, out, "robation until")
}

// TestListingTheChainOfAKind checks that the chain contains the plugins in the order in which they run, and the reasons
// why all other plugins are left out.
func TestListingTheChainOfAKind(t *testing.T) {
	const provider, nodeName = "chain-milan", "chain-milan"
	node(t, nodeName)
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "chain-shop", Labels: map[string]string{"team": "shop"}}})
	active := plugins.VirtualNodePlugin{Name: nodeName, State: plugins.ActivePlugin}
	add := func(name string, entry plugins.VirtualNodePlugin, change func(*plugins.ReflectionPluginSpec)) {
		p := declaredPluginOf(t, name, change)
		setPluginStatus(t, p, plugins.ReflectionPluginStatus{ActiveRevision: revisionOf(t, p, 1, entry), Nodes: "1/1"})
	}
	selector := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": value}}
	}
	add("chain-z-last", active, func(s *plugins.ReflectionPluginSpec) { s.Priority = 5 })
	add("chain-b", active, nil)
	add("chain-a", active, func(s *plugins.ReflectionPluginSpec) {
		s.Match = &plugins.PluginMatch{NamespaceSelector: selector("shop"), ObjectSelector: selector("web")}
	})
	add("chain-first", active, func(s *plugins.ReflectionPluginSpec) { s.Priority = -1 })
	add("chain-pods", active, func(s *plugins.ReflectionPluginSpec) { s.Kinds = []string{"Pod"} })
	add("chain-other", active, func(s *plugins.ReflectionPluginSpec) {
		s.Match = &plugins.PluginMatch{NamespaceSelector: selector("bank")}
	})
	add("chain-turin", active, func(s *plugins.ReflectionPluginSpec) { s.Match = &plugins.PluginMatch{Providers: []string{"turin"}} })
	add("chain-held", plugins.VirtualNodePlugin{Name: nodeName, State: plugins.FailedPlugin, Message: "does not load"}, nil)
	earlier := declaredPluginOf(t, "chain-d", nil)
	revisionOf(t, earlier, 1, active)
	setPluginStatus(t, earlier, plugins.ReflectionPluginStatus{
		ActiveRevision: revisionOf(t, earlier, 2, plugins.VirtualNodePlugin{Name: nodeName, State: plugins.RolledBackPlugin, Message: "it failed"}), Nodes: "0/1",
	})
	kept := declaredPluginOf(t, "chain-e", nil)
	revisionOf(t, kept, 1)
	setPluginStatus(t, kept, plugins.ReflectionPluginStatus{ActiveRevision: revisionOf(t, kept, 2, plugins.VirtualNodePlugin{
		Name: nodeName, State: plugins.FailedPlugin, Reason: "ModuleMissing", RunningRevision: "chain-e-1"}), Nodes: "0/1"})
	declaredPluginOf(t, "chain-new", nil)
	out, _, err := refractctl(t, onCluster("plugin", "list", "--kind=services", "-n", "chain-shop", "--node="+nodeName, "-o", "json")...)
	require.NoError(t, err)
	var chain commands.Chain
	require.NoError(t, json.Unmarshal([]byte(out), &chain))
	var names []string
	for _, p := range chain.Chain {
		names = append(names, p.Name)
	}
	assert.Equal(t, []string{"chain-first", "service", "chain-a", "chain-b", "chain-d", "chain-e", "chain-z-last"}, names)
	assert.Equal(t, "chain-d-1", chain.Chain[4].Revision, "which runs since the virtual node has rolled back the other one")
	assert.Equal(t, "chain-d-2", chain.Chain[4].InsteadOf)
	assert.Equal(t, "chain-e-1", chain.Chain[5].Revision, "which runs because the virtual node cannot load the other one")
	assert.Equal(t, "chain-e-2", chain.Chain[5].InsteadOf)
	assert.Equal(t, []string{"objects with team=web"}, chain.Chain[2].When)
	leftOut := map[string]string{}
	for _, p := range chain.LeftOut {
		leftOut[p.Name] = p.Reason
	}
	for name, want := range map[string]string{
		"chain-pods": "it is for Pod", "chain-other": "namespaces with team=bank", "chain-turin": "the provider of chain-milan is " + provider,
		"chain-held": "Failed on chain-milan: does not load", "chain-new": "no revision is active (not reconciled)",
	} {
		assert.Contains(t, leftOut[name], want, name)
	}

	// A plugin that replaces the default plugin runs instead of it. If the replacement has a selector, the default
	// plugin still runs for the objects that the selector does not match.
	add("chain-replacing", active, func(s *plugins.ReflectionPluginSpec) {
		s.Replaces, s.Match = "service", &plugins.PluginMatch{ObjectSelector: selector("web")}
	})
	out, _, err = refractctl(t, onCluster("plugin", "list", "--kind=Service", "-n", "chain-shop")...)
	require.NoError(t, err)
	assert.Regexp(t, `service +Default .*where chain-replacing, which replaces it, does not run`, out)
	add("chain-replacing-all", active, func(s *plugins.ReflectionPluginSpec) { s.Replaces = "service" })
	out, _, err = refractctl(t, onCluster("plugin", "list", "--kind=Service", "-n", "chain-shop")...)
	require.NoError(t, err)
	assert.Regexp(t, `service +the default plugin, replaced by chain-replacing-all`, out)
	_, _, err = refractctl(t, onCluster("plugin", "list", "--kind=Widget")...)
	require.ErrorContains(t, err, `this cluster does not serve "Widget"`)
	assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err))
	_, _, err = refractctl(t, onCluster("plugin", "list", "-n", "chain-absent")...)
	require.ErrorContains(t, err, "there is no namespace chain-absent")

	out, _, err = refractctl(t, onCluster("plugin", "list")...)
	require.NoError(t, err)
	assert.Regexp(t, `chain-b +chain-b-1 .*1/1`, out)
	out, _, err = refractctl(t, onCluster("plugin", "list", "-o", "name")...)
	require.NoError(t, err)
	assert.Contains(t, out, "reflectionplugin.plugins.refract.io/chain-b\n")
	offered, _, err := refractctl(t, append(onCluster("__complete", "plugin", "rollback", "chain-b"), "--to", "")...)
	require.NoError(t, err)
	assert.Contains(t, offered, "chain-b-1")
}

// TestListingPluginsInFolders checks that plugins in the folder of a virtual kubelet are listed with the state that the
// annotation of its Node reports, both in the chain of a kind and in the list of plugins.
func TestListingPluginsInFolders(t *testing.T) {
	const nodeName = "folder-milan"
	node(t, nodeName)
	node(t, "folder-turin")
	text, err := folderplugins.Encode([]folderplugins.Plugin{
		{Name: "folder-early", State: "Loaded", IsRunning: true, Version: "1.2", Kinds: []string{"Service"},
			Hooks: []string{"outgoing"}, Priority: -3},
		{Name: "folder-late", State: "Failed", IsRunning: true, Version: "1.0", Kinds: []string{"Service"}, Priority: 7},
		{Name: "folder-pods", State: "Loaded", IsRunning: true, Version: "3.0", Kinds: []string{"Pod"}},
		{Name: "folder-broken", State: "Failed", Held: []string{"Service", "Pod"}},
	})
	require.NoError(t, err)
	annotate := func(name, text string) {
		n := &corev1.Node{}
		require.NoError(t, admin(t).Get(t.Context(), client.ObjectKey{Name: name}, n))
		before := n.DeepCopy()
		n.Annotations = map[string]string{folderplugins.Annotation: text}
		require.NoError(t, admin(t).Patch(t.Context(), n, client.MergeFrom(before)))
	}
	annotate(nodeName, text)
	p := declaredPluginOf(t, "folder-declared", nil)
	setPluginStatus(t, p, plugins.ReflectionPluginStatus{ActiveRevision: revisionOf(t, p, 1, plugins.VirtualNodePlugin{Name: nodeName,
		State: plugins.ActivePlugin}), Nodes: "1/1"})
	names := func(c *commands.Chain) (found []string) {
		for _, p := range c.Chain {
			if strings.HasPrefix(p.Name, "folder-") || p.Origin == commands.DefaultOrigin {
				found = append(found, p.Name+" "+p.Origin)
			}
		}
		return found
	}
	listChain := func(arguments ...string) *commands.Chain {
		t.Helper()
		out, _, err := refractctl(t, onCluster(append([]string{"plugin", "list", "--kind=Service", "-o", "json"}, arguments...)...)...)
		require.NoError(t, err)
		chain := &commands.Chain{}
		require.NoError(t, json.Unmarshal([]byte(out), chain))
		return chain
	}
	chain := listChain("--node=" + nodeName)
	assert.Equal(t, []string{"folder-early Folder", "service Default", "folder-declared Declared", "folder-late Folder"}, names(chain))
	assert.Equal(t, commands.ChainedPlugin{Name: "folder-early", Origin: commands.FolderOrigin, Priority: -3, Version: "1.2",
		Hooks: []string{"outgoing"}}, chain.Chain[0])
	assert.Contains(t, chain.LeftOut, commands.LeftOutPlugin{Name: "folder-pods", Reason: "kinds: in the folder of folder-milan, it is for Pod"})
	assert.Contains(t, chain.LeftOut, commands.LeftOutPlugin{Name: "folder-broken",
		Reason: "in the folder of folder-milan, Failed; objects are held: Service, Pod: see the Events of the VirtualNode"})
	assert.Equal(t, []string{"service Default"}, names(listChain("--node=folder-turin")))
	assert.Equal(t, []string{"virtual nodes folder-milan"}, listChain().Chain[0].When)

	annotate("folder-turin", "nonsense")
	out, warnings, err := refractctl(t, onCluster("plugin", "list")...)
	require.NoError(t, err)
	assert.Regexp(t, `folder-declared +folder-declared-1 `, out)
	assert.Regexp(t, `folder-early +1.2 +Service +-3 +folder-milan +Loaded`, out)
	assert.Regexp(t, `folder-late +1.0 +Service +7 +folder-milan +Failed, an earlier version runs`, out)
	assert.Regexp(t, `folder-broken .*Failed, Service, Pod held`, out)
	assert.Contains(t, warnings, "node folder-turin: reading the annotation")
}

// TestListingFolderPluginsWithoutDefinitions checks that the plugins in folders are listed in a cluster without the CRDs
// of declared plugins, as beside Liqo's controllers, where no other plugins run.
func TestListingFolderPluginsWithoutDefinitions(t *testing.T) {
	liqo := testenv.ForTest(t, testenv.Options{Name: "undefined", NoScheduler: true})[0]
	c, err := accessTo(liqo.Kubeconfig()).NewClient(invocation.RequestTimeout)
	require.NoError(t, err)
	text, err := folderplugins.Encode([]folderplugins.Plugin{
		{Name: "strip", State: "Loaded", IsRunning: true, Version: "1.2", Kinds: []string{"Service"}, Hooks: []string{"outgoing"}},
	})
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        "milan",
		Labels:      map[string]string{wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: "milan"},
		Annotations: map[string]string{folderplugins.Annotation: text},
	}}))
	for want, args := range map[string][]string{
		`strip +1.2 +Service +0 +milan +Loaded`: nil,
		`2 +strip +Folder`:                      {"--kind=Service", "--node=milan"},
	} {
		out, warnings, err := refractctl(t, append([]string{"plugin", "list", "--kubeconfig=" + liqo.Kubeconfig()}, args...)...)
		require.NoError(t, err)
		assert.Regexp(t, want, out)
		assert.Contains(t, warnings, "ReflectionPlugins are not defined in this cluster")
	}
}
