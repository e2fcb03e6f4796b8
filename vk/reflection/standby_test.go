// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"net/http"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// watches counts the watches that a client has started, by resource.
type watches struct {
	mu    sync.Mutex
	begun map[string]int
}

// wrap implements transport.WrapperFunc.
func (w *watches) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.URL.Query().Get("watch") == "true" {
			w.mu.Lock()
			w.begun[path.Base(request.URL.Path)]++
			w.mu.Unlock()
		}
		return next.RoundTrip(request)
	})
}

func (w *watches) of(resource string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun[resource]
}

// standby starts a standby replica in addition to the lab's own manager, and returns the replica with the watches it
// has started on the provider.
func standby(l *lab, wrap ...func(http.RoundTripper) http.RoundTripper) (*reflection.Manager, *watches) {
	l.Helper()
	begun := &watches{begun: map[string]int{}}
	leader := l.Options
	l.Options.StandBy = true
	l.Options.Local, l.Options.Remote = rest.CopyConfig(leader.Local), rest.CopyConfig(leader.Remote)
	l.Options.Remote.Wrap(begun.wrap)
	for _, f := range wrap {
		l.Options.Local.Wrap(f)
	}
	l.StartUnready()
	l.Options = leader
	return l.Manager, begun
}

func ready(manager *reflection.Manager) func() error {
	return func() error {
		if !manager.Ready() {
			return errors.New("the replica does not reflect everything yet")
		}
		return nil
	}
}

// TestStandbyIsWarm checks that a standby replica watches the objects that it is going to reflect, and writes no
// objects. When the replica becomes the leader, it must continue without reading the objects again.
func TestStandbyIsWarm(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.ChainsForPods()
	manager, begun := standby(l)
	l.Pod("web")
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Eventually(func() error {
		if reflection.Pod(manager, l.Namespace, "web") == nil || begun.of("shadowpods") == 0 || begun.of("pods") == 0 {
			return errors.New("the caches are not read")
		}
		return nil
	})
	assert.Never(t, func() bool { return len(l.Local.Writes(t))+len(l.Remote.Writes(t)) > 0 || manager.Ready() }, time.Second, 100*time.Millisecond,
		"a replica that stands by writes")
	assert.Zero(t, begun.of("services"), "what all virtual nodes of a provider share is the business of the one that leads")
	shadows, pods := begun.of("shadowpods"), begun.of("pods")

	manager.Lead()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	l.Eventually(ready(manager))
	assert.Equal(t, shadows, begun.of("shadowpods"), "ShadowPods are read again")
	assert.Equal(t, pods, begun.of("pods"), "the provider's pods are read again")
}

// TestOutdatedStandbyDeletesNothing checks that outdated caches of a replica that becomes the leader do no harm: the
// replica must not delete a copy whose object it has not seen yet.
func TestOutdatedStandbyDeletesNothing(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"pods", "namespacemaps"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.ChainsForPods()
			other := l.AnotherNamespace()
			watch := delay(resource)
			manager, begun := standby(l, watch.wrap)
			l.Start() // starts a manager that leads
			l.Pod("before")
			l.Present(l.Remote, "ShadowPod", l.RemoteNS, "before")
			l.Eventually(func() error {
				if reflection.Pod(manager, l.Namespace, "before") == nil || begun.of("shadowpods") == 0 {
					return errors.New("the standby replica has not read everything")
				}
				return nil
			})
			watch.hold()
			if resource == "namespacemaps" {
				l.MapNamespaces(map[string]string{l.Namespace: other})
				// This ShadowPod shows that the leader has read the map.
				l.Present(l.Remote, "ShadowPod", other, "before")
			} else {
				other = l.RemoteNS
			}
			l.Pod("after")
			shadow := l.Present(l.Remote, "ShadowPod", other, "after")
			l.Settled()
			l.Stop()

			manager.Lead()
			assert.Never(t, func() bool {
				_, err := l.Remote.Of("ShadowPod", other).Get(t.Context(), "after", metav1.GetOptions{})
				return err != nil || manager.Ready()
			}, 2*time.Second, 100*time.Millisecond, "it leads by a cache that is outdated")
			watch.release()
			l.Eventually(ready(manager))
			l.Pod("new")
			l.Present(l.Remote, "ShadowPod", other, "new")
			now := l.Present(l.Remote, "ShadowPod", other, "after")
			assert.Equal(t, shadow.GetUID(), now.GetUID())
			if other != l.RemoteNS {
				l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "after")
			}
		})
	}
}
