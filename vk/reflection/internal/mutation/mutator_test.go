// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/metrics"
	"github.com/refract-project/refract/vk/reflection/internal/report"
)

// chain is a function that acts as a plugin chain.
type chain func(hook host.Hook, env *host.Env) (*host.Outcome, error)

func (c chain) Run(_ context.Context, _ string, hook host.Hook, _ *document.Document, env *host.Env) (*host.Outcome, error) {
	return c(hook, env)
}

func (chain) Subscribe(func(string, host.Hook, uint64)) (cancel func()) { return func() {} }

func newMutator(t *testing.T, confidential bool, run chain) (*Mutator, *apistub.Events) {
	t.Helper()
	events := &apistub.Events{}
	reporter := report.New(func() {})
	reporter.Start(events)
	t.Cleanup(reporter.Close)
	return &Mutator{
		Kind: "ConfigMap", Confidential: confidential, Chains: run, Events: reporter.ForKind("ConfigMap"), Metrics: metrics.New(),
		Remapper: func(namespace string, hook host.Hook) func(string) (string, bool) {
			return func(ip string) (string, bool) { return namespace + " " + hook.String() + " " + ip, true }
		},
	}, events
}

func object(status any) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "shop", "name": "a", "uid": "1"}}}
	if status != nil {
		made.Object["status"] = status
	}
	return made
}

// TestPluginsShareNothingOfConfidentialObjects checks that a plugin may keep state from one object of a namespace to
// the next, unless the objects are confidential.
func TestPluginsShareNothingOfConfidentialObjects(t *testing.T) {
	t.Parallel()
	for confidential, domain := range map[bool]string{false: "shop", true: "shop/1"} {
		var seen host.Env
		m, _ := newMutator(t, confidential, func(_ host.Hook, env *host.Env) (*host.Outcome, error) {
			seen = *env
			return &host.Outcome{}, nil
		})
		w := evaluation.NewWorker(slog.New(slog.DiscardHandler))
		_, err := m.Mutate(t.Context(), w, host.Outgoing, "shop", object(nil).Object, &Input{object(nil).Object, map[string]any{"nodeName": "milan"}})
		require.NoError(t, err)
		assert.Equal(t, domain, seen.Domain)
		assert.Equal(t, map[string]any{"nodeName": "milan"}, seen.Context)
		mapped, _ := seen.RemapIP("10.0.0.1")
		assert.Equal(t, "shop outgoing 10.0.0.1", mapped)
	}
}

// TestIncomingStatuses checks the result of the incoming chain. A status is returned with long messages truncated. A
// skipped copy has no status. A failed plugin and an invalid status are errors.
func TestIncomingStatuses(t *testing.T) {
	t.Parallel()
	failed := errors.New("trapped")
	for name, c := range map[string]struct {
		remote  any
		outcome *host.Outcome
		err     error
		status  map[string]any
		problem string
	}{
		"none yet":        {outcome: &host.Outcome{}},
		"a status":        {remote: map[string]any{"phase": "Ready"}, outcome: &host.Outcome{}, status: map[string]any{"phase": "Ready"}},
		"a skipped copy":  {remote: map[string]any{"phase": "Ready"}, outcome: &host.Outcome{Skipped: true}},
		"a failed plugin": {remote: map[string]any{"phase": "Ready"}, err: failed, problem: "trapped"},
		"not an object":   {remote: "Ready", outcome: &host.Outcome{}, problem: "a status that is not an object"},
		"a long message": {remote: map[string]any{"message": strings.Repeat("x", 2*content.MaxMessageBytes)}, outcome: &host.Outcome{},
			status: content.CutStatus(map[string]any{"message": strings.Repeat("x", 2*content.MaxMessageBytes)})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := newMutator(t, false, func(hook host.Hook, env *host.Env) (*host.Outcome, error) {
				assert.Equal(t, host.Incoming, hook)
				assert.NotNil(t, env.Context["local"], "plugins see the object here")
				return c.outcome, c.err
			})
			w := evaluation.NewWorker(slog.New(slog.DiscardHandler))
			status, err := m.IncomingStatus(t.Context(), w, map[string]any{}, object(nil), object(c.remote))
			if c.problem != "" {
				require.ErrorContains(t, err, c.problem)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.status, status)
		})
	}
}

// TestUsersHearOfWarnings checks that Events report the warnings of plugins, and annotations whose keys are in the
// wrong case.
func TestUsersHearOfWarnings(t *testing.T) {
	t.Parallel()
	m, events := newMutator(t, false, nil)
	w := evaluation.NewWorker(slog.New(slog.DiscardHandler))
	m.Warnings(w, object(nil), &host.Outcome{Warnings: []host.Warning{{Plugin: "strict", Message: "careful"}, {Message: "of the guard"}}})
	assert.True(t, w.Warned)
	events.Await(t, failure.PluginWarningReason, "plugin strict: careful")
	events.Await(t, failure.PluginWarningReason, "a: of the guard")
	w.Reset()
	annotated := object(nil)
	annotated.SetAnnotations(map[string]string{"liqo.io/skip-reflection": "true", "other/Skip-Reflection": "true"})
	m.CheckAnnotations(w, annotated)
	assert.False(t, w.Warned)
	annotated.SetAnnotations(map[string]string{"liqo.io/Skip-Reflection": "true"})
	m.CheckAnnotations(w, annotated)
	assert.True(t, w.Warned)
	events.Await(t, failure.InvalidObjectReason, "did you mean liqo.io/skip-reflection?")
}
