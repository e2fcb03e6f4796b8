// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/fieldmanager"
	"github.com/refract-project/refract/internal/pluginrevision"
	"github.com/refract-project/refract/vk/reflection"
)

// longestResult returns a result with as many details as the API permits, each with the maximum length.
func longestResult() *plugins.PluginRehearsalResult {
	r := &plugins.PluginRehearsalResult{Against: "strip-1", Objects: 1e9, Unchanged: 1e9, Changed: 1e9, Removed: 7, Errors: 1e9,
		NotDeterministic: 1e9, OtherRevisions: pluginrevision.OthersKey(nil, "strip")}
	const kind = "NetworkPolicy.networking.k8s.io"
	for range 20 {
		r.Paths = append(r.Paths, plugins.RehearsedPath{Kind: kind, Path: strings.Repeat("p", 256), Objects: 1e9, NewPodsOnly: true})
	}
	for range 10 {
		r.Conflicts = append(r.Conflicts, plugins.RehearsedConflict{Kind: kind, Path: strings.Repeat("p", 256),
			Plugin: strings.Repeat("o", 253), Earlier: strings.Repeat("e", 253), Objects: 1e9})
	}
	for range 5 {
		r.Examples = append(r.Examples, plugins.RehearsedObject{Kind: kind, Namespace: strings.Repeat("n", 63),
			Name: strings.Repeat("o", 253), Outcome: plugins.ErrorOutcome,
			Message: strings.Repeat("m", 256)})
	}
	return r
}

// TestDetailsAreLimited checks that details are left out only if they are too long, and that the last ones of each list
// are left out.
func TestDetailsAreLimited(t *testing.T) {
	small := &plugins.PluginRehearsalResult{Objects: 5, Changed: 5,
		Examples: []plugins.RehearsedObject{{Kind: "Pod", Namespace: "shop", Name: "web-7d4b9c6f5-x2lqm", Outcome: plugins.ChangedOutcome}}}
	for n := range 20 {
		small.Paths = append(small.Paths, plugins.RehearsedPath{Kind: "Pod", Path: fmt.Sprintf("metadata.labels.label-%02d", n),
			Objects: 5})
	}
	assert.Equal(t, small, limitDetails(small))

	longest := longestResult()
	limited := limitDetails(longest)
	assert.Equal(t, countsOf(longest), countsOf(limited))
	assert.NotEmpty(t, limited.Paths)
	assert.NotEmpty(t, limited.Conflicts)
	assert.NotEmpty(t, limited.Examples)
	text, err := json.Marshal(limited)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(text), maxDetails+512)
}

// TestReportsOfManyVirtualNodesFit checks that the reports of the maximum number of virtual nodes fit into one
// revision. When the revision is active, its entries contain only the counts.
func TestReportsOfManyVirtualNodesFit(t *testing.T) {
	l := newLab(t, true)
	l.store()
	p := l.declare("strip", nil)
	l.create(p, 2, leaves)
	l.fill("strip-2", maxVirtualNodes-1, plugins.VirtualNodePlugin{State: plugins.StandbyPlugin, Reason: RehearsedReason,
		Rehearsal: limitDetails(longestResult())})
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
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- f.RunRehearsals(ctx, changed, func(context.Context, reflection.PluginCandidate) (*plugins.PluginRehearsalResult, error) {
			return longestResult(), nil
		})
	}()
	defer func() { cancel(); assert.NoError(t, <-done) }()
	own := func(state plugins.PluginState) (found *plugins.PluginRehearsalResult) {
		t.Helper()
		l.eventually(fmt.Sprintf("the entry %s", state), func() error {
			r := &plugins.PluginRevision{}
			if err := l.admin.Get(t.Context(), client.ObjectKey{Name: "strip-2"}, r); err != nil {
				return err
			}
			entry := f.entryIn(r)
			if entry == nil || entry.State != state {
				return fmt.Errorf("it is %+v", entry)
			}
			assert.Len(t, r.Status.VirtualNodes, maxVirtualNodes)
			found = entry.Rehearsal
			return nil
		})
		return found
	}
	before := p.DeepCopy()
	p.Status.CandidateRevision = "strip-2"
	l.must(l.admin.Status().Patch(t.Context(), p, client.MergeFrom(before)))
	assert.Equal(t, limitDetails(longestResult()), own(plugins.StandbyPlugin))
	before = p.DeepCopy()
	p.Status.ActiveRevision, p.Status.CandidateRevision = "strip-2", ""
	l.must(l.admin.Status().Patch(t.Context(), p, client.MergeFrom(before)))
	assert.Equal(t, countsOf(longestResult()), own(plugins.ActivePlugin))
}

// fill adds entries of other virtual nodes, with the longest names, to a revision, as if each virtual node had written
// its own entry.
func (l *lab) fill(revision string, number int, entry plugins.VirtualNodePlugin) {
	l.Helper()
	name := func(n int) string { return fmt.Sprintf("%0253d", n) }
	entry.Name = name(0)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&entry)
	l.must(err)
	status := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": plugins.GroupVersion.String(), "kind": plugins.PluginRevisionKind, "metadata": map[string]any{"name": revision},
		"status": map[string]any{"virtualNodes": []any{fields}},
	}}
	manager := func(n int) string { return fieldmanager.OfNode(name(n)) }
	l.must(l.admin.SubResource("status").Apply(l.Context(), client.ApplyConfigurationFromUnstructured(status),
		client.FieldOwner(manager(0))))

	r := &plugins.PluginRevision{}
	l.must(l.admin.Get(l.Context(), client.ObjectKey{Name: revision}, r))
	own := *r.ManagedFields[slices.IndexFunc(r.ManagedFields,
		func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manager(0) })].DeepCopy()
	for n := 1; n < number; n++ {
		entry.Name = name(n)
		r.Status.VirtualNodes = append(r.Status.VirtualNodes, entry)
	}
	l.must(l.admin.Status().Update(l.Context(), r, client.FieldOwner(manager(0))))
	for n := 1; n < number; n++ { // after the update, one manager owns all entries
		m := own
		m.Manager, m.FieldsV1 = manager(n), metav1.NewFieldsV1(strings.Replace(own.FieldsV1.GetRawString(), name(0), name(n), 1))
		r.ManagedFields = append(r.ManagedFields, m)
	}
	l.must(l.admin.Update(l.Context(), r))
	require.Len(l, r.Status.VirtualNodes, number)
	require.GreaterOrEqual(l, len(r.ManagedFields), number)
}

// TestLongMessagesFitIntoEntries checks the messages of entries against the CRD. The API server rejects an entry with a
// longer message, so that the virtual node would report nothing.
func TestLongMessagesFitIntoEntries(t *testing.T) {
	text, err := os.ReadFile("../../api/crds/plugins.refract.io_pluginrevisions.yaml")
	require.NoError(t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(text, &crd.Object))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	require.NoError(t, err)
	limit, found, err := unstructured.NestedFieldNoCopy(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties",
		"virtualNodes", "items", "properties", "message", "maxLength")
	require.True(t, found, "%v", err)
	assert.EqualValues(t, limit, maxEntryMessage)

	long := strings.Repeat("wasm stack trace of a plugin that traps ", 1000)
	w := newWorkbench(t)
	f := w.follower()
	f.known["strip"] = &pluginState{revision: "strip-1", state: plugins.FailedPlugin, reason: "StartFailed", message: long}
	revision := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: "strip-1"}, Spec: plugins.PluginRevisionSpec{Plugin: "strip"}}
	entry := f.desiredEntry(revision, nil, nil)
	require.NotNil(t, entry)
	assert.LessOrEqual(t, len(entry.Message), maxEntryMessage)
	assert.True(t, strings.HasSuffix(entry.Message, "…"))
	f.ReportState("strip-2", plugins.VirtualNodePlugin{State: plugins.RehearsingPlugin, Reason: RehearsalFailedReason, Message: long})
	assert.LessOrEqual(t, len(f.others["strip-2"].Message), maxEntryMessage)
}
