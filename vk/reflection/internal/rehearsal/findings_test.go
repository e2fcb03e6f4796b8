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

// TestReportsContainNoValues rehearses a plugin that makes keys of a password: in an annotation, in a field that does not exist, in an
// edit that another plugin overwrites, and in an edit that is denied.
func TestReportsContainNoValues(t *testing.T) {
	const password = "aHVudGVyMg"
	content := func(extra map[string]any) map[string]any {
		fields := map[string]any{"data": map[string]any{"password": password}, "metadata": map[string]any{"annotations": map[string]any{"known": "1"}}}
		for key, value := range extra {
			fields[key] = value
		}
		return fields
	}
	after := content(map[string]any{
		password:    "x",
		"immutable": true,
		"metadata":  map[string]any{"annotations": map[string]any{"known": "2", "x/" + password: "1"}, "labels": map[string]any{password: "1"}},
	})
	pair := &engine.Pair{}
	pair.Before.Content, pair.After.Content = content(nil), after
	pair.Before.Changeable, pair.After.Changeable = pair.Before.Content, pair.After.Content
	f := newFindings(Candidate{Plugin: "p"})
	require.True(t, f.addPaths("Secret", pair, true))
	f.addConflicts("Secret", &engine.Comparison{Outgoing: pair, HasCopy: true, Conflicts: []host.Conflict{
		{First: "p", Then: "q", Path: "metadata.annotations[x/" + password + "]"}, {First: "p", Then: "q", Path: "metadata.annotations.known"},
	}})
	denied := &host.GuardError{Plugin: "p", Hook: host.Outgoing, Path: "metadata.labels[x/" + password + "]", Rule: "it is not in writes"}
	f.addExample("Secret", engine.Comparison{}.Key, plugins.ErrorOutcome, describeError(denied))
	report, err := json.Marshal(f.result())
	require.NoError(t, err)
	require.NotContains(t, string(report), password)
	var paths []string
	for _, p := range f.result().Paths {
		paths = append(paths, p.Path)
	}
	require.ElementsMatch(t, []string{"[*]", "immutable", "metadata.annotations.known", "metadata.annotations[*]", "metadata.labels[*]"}, paths)
	require.Contains(t, string(report), `may not change metadata.labels[*] in outgoing: it is not in writes`)
}
