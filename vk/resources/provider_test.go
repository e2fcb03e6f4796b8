// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/vk/reflection"
)

// TestProviderAway checks that an unreachable provider does not affect a running reflection, and that changes are
// applied if they need no request to the provider.
func TestProviderAway(t *testing.T) {
	l := newLab(t).start()
	l.both("away.example.org", "Namespaced")
	const name, kind = "widgets.away.example.org", "Widget.away.example.org"
	l.reflect(name, "{group: away.example.org, version: v1, resource: widgets}")
	before := l.condition(name, pluginsv1alpha1.ReflectingReason)
	require.NoError(t, l.remote.StopAPIServer())
	l.change(name, "{policy: AllowList, statusBack: true}")
	l.condition(name, pluginsv1alpha1.UnreachableReason, "the API server of cluster milan does not answer")
	l.reflecting(kind, func(k reflection.Kind) bool { return k.Policy == reflection.AllowList && !k.Status.Back })
	require.NoError(t, l.remote.StartAPIServer(t.Context()))
	after := l.condition(name, pluginsv1alpha1.ReflectingReason)
	if !before.LastTransitionTime.Before(&after.LastTransitionTime) {
		t.Errorf("it is ready since %s, before it was away %s", after.LastTransitionTime, before.LastTransitionTime)
	}
	l.reflecting(kind, func(k reflection.Kind) bool { return k.Status.Back && !k.Status.Subresource })
	if said := l.engine.heard(); slices.Contains(said, "stop "+kind) {
		t.Errorf("the engine heard %q", said)
	}
}

// TestProviderSwallowsRequests checks that work that does not need the provider is not delayed while the provider does
// not respond, and that no request is sent while the provider is known to be unreachable.
func TestProviderSwallowsRequests(t *testing.T) {
	l := newLab(t)
	hole := &blackHole{}
	l.options.Remote.Wrap(hole.wrap)
	l.options.CallTimeout = time.Minute // longer than the duration of the test
	l.start()
	l.both("hole.example.org", "Namespaced")
	const name, kind = "widgets.hole.example.org", "Widget.hole.example.org"
	l.reflect(name, "{group: hole.example.org, version: v1, resource: widgets}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)

	hole.open.Store(true)
	l.change(name, "{policy: AllowList}")
	l.reflecting(kind, func(k reflection.Kind) bool { return k.Policy == reflection.AllowList })
	l.eventually(func() error {
		if hole.swallowed.Load() == 0 {
			return errors.New("the provider was not asked")
		}
		return nil
	})
	l.change(name, "{workers: 0}") // at this time, the previous change is still being processed
	l.condition(name, pluginsv1alpha1.PausedReason)
	l.stopped(kind)

	l.engine.lose(true)
	l.change(name, "{workers: 1}")
	l.condition(name, pluginsv1alpha1.UnreachableReason, "the API server of cluster milan does not answer")
	hole.open.Store(false)
	l.engine.lose(false)
	l.condition(name, pluginsv1alpha1.ReflectingReason)
}

// blackHole is a transport that, while it is open, does not respond to requests.
type blackHole struct {
	open      atomic.Bool
	swallowed atomic.Int32
}

func (h *blackHole) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if !h.open.Load() {
			return next.RoundTrip(request)
		}
		h.swallowed.Add(1)
		<-request.Context().Done()
		return nil, request.Context().Err()
	})
}

// TestDefinitionGoesAndMayNotBeCopied checks that the reflection of a resource that is no longer served stops even if
// there is another problem.
func TestDefinitionGoesAndMayNotBeCopied(t *testing.T) {
	l := newLab(t).start()
	l.both("gone.example.org", "Namespaced")
	const name, kind = "widgets.gone.example.org", "Widget.gone.example.org"
	l.reflect(name, "{group: gone.example.org, version: v1, resource: widgets, copyDefinition: true}")
	l.condition(name, pluginsv1alpha1.ReflectingReason)
	l.undefine(l.remote, name)
	l.eventually(func() error {
		found, err := l.follower.remote.discoverResource(t.Context(), schema.GroupVersionResource{Group: "gone.example.org", Version: "v1", Resource: "widgets"})
		if lacking := (*unserved)(nil); !errors.As(err, &lacking) {
			return fmt.Errorf("it is still served: %v, %v", found, err)
		}
		return nil
	})
	l.change(name, "{workers: 2}")
	l.condition(name, pluginsv1alpha1.MissingPermissionReason, "copy CustomResourceDefinition "+name)
	l.stopped(kind)
}
