// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// The provider's API server goes away and comes back. Not parallel: the provider belongs to all.
func TestProviderOutage(t *testing.T) {
	l := newLab(t, func(o *Options) { o.CallTimeout = 2 * time.Second })
	l.start()
	l.local.create(t, l.namespace, service("before", ""))
	l.local.create(t, l.namespace, service("deleted-meanwhile", ""))
	l.present(l.remote, "Service", l.remoteNS, "before")
	l.present(l.remote, "Service", l.remoteNS, "deleted-meanwhile")
	l.settled()

	evaluated := l.evaluated()
	if err := l.remote.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		l.local.create(t, l.namespace, service(fmt.Sprintf("meanwhile-%d", i), ""))
	}
	l.local.patchYAML(t, "Service", l.namespace, "before", `{spec: {sessionAffinity: ClientIP}}`)
	l.local.delete(t, "Service", l.namespace, "deleted-meanwhile")
	l.eventually(func() error {
		if l.manager.Reachable() {
			return errors.New("the provider is still thought to be reachable")
		}
		return nil
	})
	// What needs no provider goes on: a pod of a namespace that is not extended is told so.
	l.local.createNamespace(t, l.namespace+"-not-extended")
	l.local.create(t, l.namespace+"-not-extended", fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: stray}, spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}`, l.node))
	l.present(l.local, "Pod", l.namespace+"-not-extended", "stray", field("status.reason", "OffloadingBackOff"))
	// Nothing spins, and nobody is told forty times.
	l.settled()
	if n := l.evaluated() - evaluated; n > 4*43 {
		t.Errorf("%d evaluations of 43 objects without a provider", n)
	}
	for i := range 40 {
		if events := l.events(l.namespace, "Service", fmt.Sprintf("meanwhile-%d", i)); len(events) > 0 {
			t.Fatalf("an outage made the Events %q", events)
		}
	}

	// A restart without a provider: it waits, and deletes nothing here or there.
	l.stop()
	l.startUnready()
	l.eventually(func() error {
		if !l.manager.Synced() {
			return errors.New("this cluster's side is not read")
		}
		return nil
	})
	if err := l.remote.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for i := range 40 {
		l.present(l.remote, "Service", l.remoteNS, fmt.Sprintf("meanwhile-%d", i))
	}
	l.present(l.remote, "Service", l.remoteNS, "before", field("spec.sessionAffinity", "ClientIP"))
	l.absent(l.remote, "Service", l.remoteNS, "deleted-meanwhile")
	t.Logf("everything was reflected %s after the provider came back", time.Since(back).Round(10*time.Millisecond))
}
