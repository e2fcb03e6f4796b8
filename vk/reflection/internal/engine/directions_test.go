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
)

func TestErrorsHaveADirection(t *testing.T) {
	out, back := errors.New("out"), errors.New("back")
	assert.Equal(t, map[Direction]error{Out: out, Back: back}, directions(Directed(out, back)))
	assert.Equal(t, map[Direction]error{Out: nil, Back: back}, directions(Directed(nil, back)))
	assert.Equal(t, map[Direction]error{Out: out, Back: nil}, directions(out))
	assert.NoError(t, Directed(nil, nil))
	assert.ErrorIs(t, Directed(out, back), back)
}

// TestDirectionsBackOffApart checks that the status of an object whose copy is quarantined is retried with its own
// delays, which the quarantine does not reset.
func TestDirectionsBackOffApart(t *testing.T) {
	r, key := newTestReflector(t), Key{Namespace: "shop", Name: "web"}
	for range 5 {
		r.failed(key, Out, &oscillation.QuarantineError{})
		r.failed(key, Back, errors.New("refused"))
	}
	assert.Equal(t, 5, r.retries.count(key, Back))
	assert.Zero(t, r.retries.count(key, Out))
	_, failures := r.judge(NewWorker(slog.Default()), key, Directed(nil, errors.New("refused")))
	assert.Len(t, failures, 1)
	r.failed(key, Out, errors.New("refused"))
	assert.Equal(t, 1, r.retries.count(key, Out))
}

// TestPluginRetriesOfDirectionsAreApart checks that a chain that succeeds does not reset the delays of the other
// direction, and neither does an evaluation without a chain.
func TestPluginRetriesOfDirectionsAreApart(t *testing.T) {
	r, key := newTestReflector(t), Key{Namespace: "shop", Name: "web"}
	trap := &host.TrapError{Plugin: "p", During: "outgoing", Err: errors.New("unreachable")}
	judge := func(runs chainRuns, err error) {
		w := NewWorker(slog.Default())
		w.chains = runs
		_, failures := r.judge(w, key, err)
		for direction, err := range failures {
			r.failed(key, direction, err)
		}
	}
	succeeded, ignored := chainRun{ran: true}, chainRun{ran: true, ignored: true}
	for range 3 {
		judge(chainRuns{outgoing: succeeded, incoming: succeeded}, Directed(trap, nil))
	}
	assert.Equal(t, 3, r.pluginRetries.count(key, Out))
	assert.Zero(t, r.pluginRetries.count(key, Back))
	for range 2 {
		judge(chainRuns{outgoing: succeeded, incoming: ignored}, Directed(&OutputError{"invalid"}, nil))
	}
	assert.Equal(t, 5, r.pluginRetries.count(key, Out))
	assert.Equal(t, 2, r.pluginRetries.count(key, Back))
	judge(chainRuns{outgoing: succeeded}, Directed(nil, &RetryAfter{Soon}))
	assert.Zero(t, r.pluginRetries.count(key, Out))
	assert.Equal(t, 2, r.pluginRetries.count(key, Back))
	judge(chainRuns{outgoing: succeeded, incoming: succeeded}, nil)
	assert.Zero(t, r.pluginRetries.count(key, Back))
	judge(chainRuns{outgoing: ignored, incoming: ignored}, nil)
	r.forget(key)
	assert.Zero(t, r.pluginRetries.count(key, Out)+r.pluginRetries.count(key, Back))
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
