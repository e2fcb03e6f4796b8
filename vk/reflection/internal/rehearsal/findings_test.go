// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

// TestReportsContainNoValues rehearses a plugin that makes keys of a password: in annotations, in a field that does not exist, in an
// edit that another plugin overwrites, and in an edit that is denied. The active revision has already made one of the annotations.
func TestReportsContainNoValues(t *testing.T) {
	const password = "aHVudGVyMg"
	content := func(annotations map[string]any, extra map[string]any) map[string]any {
		fields := map[string]any{"data": map[string]any{"password": password}, "metadata": map[string]any{"annotations": annotations}}
		for key, value := range extra {
			fields[key] = value
		}
		return fields
	}
	pair := &engine.Pair{}
	pair.Before.Content = content(map[string]any{"known": "1", "old/" + password: "1"}, nil)
	pair.After.Content = content(map[string]any{"known": "2", "declared": "1", "new/" + password: "1"}, map[string]any{password: "x", "immutable": true})
	pair.Before.Changeable, pair.After.Changeable = pair.Before.Content, pair.After.Content
	compared := &engine.Comparison{Outgoing: pair, HasCopy: true, Object: content(map[string]any{"known": "1"}, nil), Conflicts: []host.Conflict{
		{First: "p", Then: "q", Path: "metadata.annotations[x/" + password + "]"}, {First: "p", Then: "q", Path: "metadata.annotations.known"},
	}}
	f := newFindings(Candidate{Plugin: "p", Declared: []string{"metadata.annotations[declared]"}})
	require.True(t, f.addPaths("Secret", pair, compared))
	f.addConflicts("Secret", compared)
	denied := &host.GuardError{Plugin: "p", Hook: host.Outgoing, Path: "metadata.labels[x/" + password + "]", Rule: "it is not in writes"}
	f.addExample("Secret", compared.Key, plugins.ErrorOutcome, f.describeError(denied, compared.Object))
	report, err := json.Marshal(f.result())
	require.NoError(t, err)
	require.NotContains(t, string(report), password)
	var paths []string
	for _, p := range f.result().Paths {
		paths = append(paths, p.Path)
	}
	require.ElementsMatch(t, []string{"[*]", "immutable", "metadata.annotations.known", "metadata.annotations.declared", "metadata.annotations[*]"}, paths)
	require.Contains(t, string(report), "may not change metadata.labels[*] in outgoing: it is not in writes")
	require.Contains(t, string(report), `"path":"metadata.annotations.known","plugin":"q"`)
}
