// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

func TestErrorsHaveADirection(t *testing.T) {
	out, back := errors.New("out"), errors.New("back")
	assert.Equal(t, map[evaluation.Direction]error{evaluation.Out: out, evaluation.Back: back}, evaluation.Directions(evaluation.Directed(out, back)))
	assert.Equal(t, map[evaluation.Direction]error{evaluation.Out: nil, evaluation.Back: back}, evaluation.Directions(evaluation.Directed(nil, back)))
	assert.Equal(t, map[evaluation.Direction]error{evaluation.Out: out, evaluation.Back: nil}, evaluation.Directions(out))
	assert.NoError(t, evaluation.Directed(nil, nil))
	assert.ErrorIs(t, evaluation.Directed(out, back), back)
}

// TestDirectionsBackOffApart checks that the two directions of an object have separate delays: while the copy is
// quarantined, a failed status is retried with its own delays, and the quarantine does not reset them.
func TestDirectionsBackOffApart(t *testing.T) {
	r, key := newTestReflector(t), queue.Key{Namespace: "shop", Name: "web"}
	for range 5 {
		r.failed(key, evaluation.Out, &oscillation.QuarantineError{})
		r.failed(key, evaluation.Back, errors.New("refused"))
	}
	assert.Equal(t, 5, r.queue.Retries.Count(key, evaluation.Back))
	assert.Zero(t, r.queue.Retries.Count(key, evaluation.Out))
	_, failures := r.judge(evaluation.NewWorker(slog.Default()), key, evaluation.Directed(nil, errors.New("refused")))
	assert.Len(t, failures, 1)
	r.failed(key, evaluation.Out, errors.New("refused"))
	assert.Equal(t, 1, r.queue.Retries.Count(key, evaluation.Out))
}

// TestPluginRetriesOfDirectionsAreApart checks that neither a successful chain of one direction nor an evaluation
// without a chain resets the delays of the other direction.
func TestPluginRetriesOfDirectionsAreApart(t *testing.T) {
	r, key := newTestReflector(t), queue.Key{Namespace: "shop", Name: "web"}
	trap := &host.TrapError{Plugin: "p", During: "outgoing", Err: errors.New("unreachable")}
	judge := func(runs evaluation.ChainRuns, err error) {
		w := evaluation.NewWorker(slog.Default())
		w.Chains = runs
		_, failures := r.judge(w, key, err)
		for direction, err := range failures {
			r.failed(key, direction, err)
		}
	}
	succeeded, ignored := evaluation.ChainRun{Ran: true}, evaluation.ChainRun{Ran: true, Ignored: true}
	for range 3 {
		judge(evaluation.ChainRuns{Outgoing: succeeded, Incoming: succeeded}, evaluation.Directed(trap, nil))
	}
	assert.Equal(t, 3, r.queue.PluginRetries.Count(key, evaluation.Out))
	assert.Zero(t, r.queue.PluginRetries.Count(key, evaluation.Back))
	for range 2 {
		judge(evaluation.ChainRuns{Outgoing: succeeded, Incoming: ignored}, evaluation.Directed(&failure.OutputError{Problem: "invalid"}, nil))
	}
	assert.Equal(t, 5, r.queue.PluginRetries.Count(key, evaluation.Out))
	assert.Equal(t, 2, r.queue.PluginRetries.Count(key, evaluation.Back))
	judge(evaluation.ChainRuns{Outgoing: succeeded}, evaluation.Directed(nil, &failure.RetryAfter{After: copies.Soon}))
	assert.Zero(t, r.queue.PluginRetries.Count(key, evaluation.Out))
	assert.Equal(t, 2, r.queue.PluginRetries.Count(key, evaluation.Back))
	judge(evaluation.ChainRuns{Outgoing: succeeded, Incoming: succeeded}, nil)
	assert.Zero(t, r.queue.PluginRetries.Count(key, evaluation.Back))
	judge(evaluation.ChainRuns{Outgoing: ignored, Incoming: ignored}, nil)
	r.forget(key)
	assert.Zero(t, r.queue.PluginRetries.Count(key, evaluation.Out)+r.queue.PluginRetries.Count(key, evaluation.Back))
}

// newTestReflector returns the reflector of a Manager that is not running.
func newTestReflector(t *testing.T) *reflector {
	t.Helper()
	m, err := New(Options{
		Local: &rest.Config{Host: "https://127.0.0.1:1"}, Remote: &rest.Config{Host: "https://127.0.0.1:2"}, LocalClusterID: "rome", RemoteClusterID: "milan",
		NodeName: "milan", TenantNamespace: "tenant", Registry: host.NewRegistry(nil),
		Kinds: []Kind{{Name: "Service", Source: corev1.SchemeGroupVersion.WithResource("services"), Policy: DenyList, Workers: 1}},
	})
	require.NoError(t, err)
	return m.all()[0]
}
