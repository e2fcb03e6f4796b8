// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"sync/atomic"
	"testing"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestObjectsOfAFailedPluginAreRetried although nothing changes, and without a second Event.
func TestObjectsOfAFailedPluginAreRetried(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var calls atomic.Int64
	l.Chains.Swap("Service", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		if calls.Add(1) <= 2 {
			return nil, &host.PluginFailedError{Plugin: "busy", Reason: "not now"}
		}
		return reflectiontest.MutateService(doc, env)
	})
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Start()
	l.Event(l.Namespace, "Service", "web", "Warning", "PluginFailed", "not now")
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	if events := l.Events(l.Namespace, "Service", "web"); len(events) != 1 {
		t.Errorf("one failure made the Events %q", events)
	}
}
