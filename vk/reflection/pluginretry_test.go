// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// attempts is a chain that fails in its first runs, and records the time of every run.
type attempts struct {
	mu       sync.Mutex
	at       []time.Time
	failures int
	fail     reflectiontest.ChainFunc
	succeed  reflectiontest.ChainFunc
}

// run implements the chain. It may be called concurrently.
func (a *attempts) run(doc document.Node, env *host.Env) (*host.Outcome, error) {
	a.mu.Lock()
	a.at = append(a.at, time.Now())
	failed := len(a.at) <= a.failures
	a.mu.Unlock()
	if failed {
		return a.fail(doc, env)
	}
	return a.succeed(doc, env)
}

// delays returns the times between consecutive runs.
func (a *attempts) delays() (delays []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 1; i < len(a.at); i++ {
		delays = append(delays, a.at[i].Sub(a.at[i-1]))
	}
	return delays
}

// failPlugin is a chain whose plugin fails.
func failPlugin(document.Node, *host.Env) (*host.Outcome, error) {
	return nil, &host.PluginFailedError{Plugin: "busy", Reason: "not now"}
}

// failIgnoredPlugin is a chain with a plugin that fails and has ignoreFailure, so that the chain succeeds.
func failIgnoredPlugin(doc document.Node, env *host.Env) (*host.Outcome, error) {
	outcome, err := reflectiontest.MutateService(doc, env)
	failure := &host.PluginFailedError{Plugin: "busy", Reason: "not now"}
	outcome.Calls = []host.Call{{Plugin: "busy", Err: failure}}
	outcome.Warnings = []host.Warning{{Plugin: "busy", Message: failure.Error()}}
	return outcome, err
}

// labelService is a chain that adds a label to a Service.
func labelService(doc document.Node, env *host.Env) (*host.Outcome, error) {
	outcome, err := reflectiontest.MutateService(doc, env)
	return outcome, errors.Join(err, doc.SetString("metadata.labels.mutated", "true"))
}

// TestObjectsOfAFailedPluginAreRetried checks that objects whose plugin has failed are retried although nothing has
// changed, with growing delays and without a second Event.
func TestObjectsOfAFailedPluginAreRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail         reflectiontest.ChainFunc
		reason, text string
		crosses      bool
	}{
		"failure": {failPlugin, failure.PluginFailedReason, "not now", false},
		"invalid result": {func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
			return &host.Outcome{}, doc.SetString("metadata.annotations", "nonsense")
		}, failure.InvalidObjectReason, "metadata.annotations", false},
		"ignored failure": {failIgnoredPlugin, failure.PluginWarningReason, "not now", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			chain := &attempts{failures: 2, fail: c.fail, succeed: labelService}
			l.Chains.Swap("Service", host.Outgoing, chain.run)
			l.Local.Create(t, l.Namespace, service("web", ""))
			l.Start()
			l.Event(l.Namespace, "Service", "web", "Warning", c.reason, c.text)
			l.Settled()
			assert.Equal(t, c.crosses, l.Remote.Get(t, "Service", l.RemoteNS, "web") != nil, "the object has crossed")
			l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/mutated", "true"))
			if delays := chain.delays(); assert.Len(t, delays, 2, "delays between the runs: %v", delays) {
				assert.GreaterOrEqual(t, delays[0], 5*time.Second)
				assert.GreaterOrEqual(t, delays[1], 10*time.Second)
			}
			assert.Len(t, l.Events(l.Namespace, "Service", "web"), 1)
		})
	}
}

// TestEventsOfAFailedPluginAreRetried checks that a provider's Event for which a plugin has failed is retried, so
// that it is shown even if the provider does not repeat it.
func TestEventsOfAFailedPluginAreRetried(t *testing.T) {
	t.Parallel()
	mutated := func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		return &host.Outcome{}, doc.Assign("involvedObject", env.Context["involved"])
	}
	for name, fail := range map[string]reflectiontest.ChainFunc{"failure": failPlugin, "ignored failure": func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		_, err := mutated(doc, env)
		return &host.Outcome{Calls: []host.Call{{Plugin: "busy", Err: &host.PluginFailedError{Plugin: "busy", Reason: "not now"}}}}, err
	}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(o *reflection.Options) {
				o.Kinds = reflectiontest.Kinds(reflection.ServiceKind, reflection.EventKind)
			})
			chain := &attempts{failures: 1, fail: fail, succeed: func(doc document.Node, env *host.Env) (*host.Outcome, error) {
				outcome, err := mutated(doc, env)
				return outcome, errors.Join(err, doc.SetString("message", "mutated"))
			}}
			l.Chains.Swap("Event", host.Incoming, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
				// Other Events are ignored, because the API server also writes Events about Services.
				if name, err := doc.At("metadata.name"); err != nil || name.Value() != "news" {
					return mutated(doc, env)
				}
				return chain.run(doc, env)
			})
			l.Start()
			l.Local.Create(t, l.Namespace, service("web", ""))
			remote := l.Present(l.Remote, "Service", l.RemoteNS, "web")
			l.Remote.Create(t, l.RemoteNS, said("news", remote, warning))
			l.Present(l.Local, "Event", l.Namespace, "news", reflectiontest.Field("message", "mutated"))
			if delays := chain.delays(); assert.Len(t, delays, 1) {
				assert.GreaterOrEqual(t, delays[0], 5*time.Second)
			}
		})
	}
}
