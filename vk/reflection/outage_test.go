// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestProviderOutage checks that during an outage of the provider's API server, objects wait, local work continues
// and nothing is deleted, and that reflection resumes afterwards. The test is not parallel, because all tests share
// the provider.
func TestProviderOutage(t *testing.T) {
	l := newLab(t, func(o *reflection.Options) { o.CallTimeout = 2 * time.Second })
	l.Start()
	l.Local.Create(t, l.Namespace, service("before", ""))
	l.Local.Create(t, l.Namespace, service("deleted-meanwhile", ""))
	l.Present(l.Remote, "Service", l.RemoteNS, "before")
	l.Present(l.Remote, "Service", l.RemoteNS, "deleted-meanwhile")
	l.Settled()

	evaluated := l.Evaluated()
	require.NoError(t, l.Remote.Cluster.StopAPIServer())
	for i := range 40 {
		l.Local.Create(t, l.Namespace, service(fmt.Sprintf("meanwhile-%d", i), ""))
	}
	l.Local.PatchYAML(t, "Service", l.Namespace, "before", `{spec: {sessionAffinity: ClientIP}}`)
	l.Local.Delete(t, "Service", l.Namespace, "deleted-meanwhile")
	l.Eventually(func() error {
		if l.Manager.Reachable() {
			return errors.New("the provider is still thought to be reachable")
		}
		return nil
	})
	// Work that does not need the provider must continue: a pod in a namespace that is not offloaded gets its Event.
	l.Local.CreateNamespace(t, l.Namespace+"-not-extended")
	l.Local.Create(t, l.Namespace+"-not-extended", fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: stray}, spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}`, l.Node))
	l.Present(l.Local, "Pod", l.Namespace+"-not-extended", "stray", reflectiontest.Field("status.reason", "OffloadingBackOff"))
	// Writes must not be retried in a loop, and Events must not be repeated.
	l.Settled()
	if n := l.Evaluated() - evaluated; n > 4*43 {
		t.Errorf("%d evaluations of 43 objects without a provider", n)
	}
	for i := range 40 {
		if events := l.Events(l.Namespace, "Service", fmt.Sprintf("meanwhile-%d", i)); len(events) > 0 {
			t.Fatalf("an outage made the Events %q", events)
		}
	}

	// After a restart while the provider is unreachable, the manager must wait and delete nothing on either side.
	l.Stop()
	l.StartUnready()
	l.Eventually(func() error {
		if !l.Manager.Synced() {
			return errors.New("this cluster's side is not read")
		}
		return nil
	})
	require.NoError(t, l.Remote.Cluster.StartAPIServer(t.Context()))
	back := time.Now()
	for i := range 40 {
		l.Present(l.Remote, "Service", l.RemoteNS, fmt.Sprintf("meanwhile-%d", i))
	}
	l.Present(l.Remote, "Service", l.RemoteNS, "before", reflectiontest.Field("spec.sessionAffinity", "ClientIP"))
	l.Absent(l.Remote, "Service", l.RemoteNS, "deleted-meanwhile")
	// The provider's own controllers take longer to reconnect. The test waits for them, because other tests need the
	// service accounts that they create.
	l.Remote.CreateNamespace(t, l.RemoteNS+"-recovered")
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		return l.Remote.Get(t, "ServiceAccount", l.RemoteNS+"-recovered", "default") != nil, nil
	}), "waiting for the provider to create service accounts again")
	t.Logf("everything was reflected %s after the provider came back", time.Since(back).Round(10*time.Millisecond))
}
