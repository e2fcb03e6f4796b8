// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// delayedWatch delays the watch events of one resource from hold until release, so that a cache lags behind the API
// server.
type delayedWatch struct {
	resource       string
	held, released chan struct{}
	hold, release  func()
}

func delay(resource string) *delayedWatch {
	f := &delayedWatch{resource: "/" + resource, held: make(chan struct{}), released: make(chan struct{})}
	f.hold, f.release = sync.OnceFunc(func() { close(f.held) }), sync.OnceFunc(func() { close(f.released) })
	return f
}

// wrap implements transport.WrapperFunc.
func (f *delayedWatch) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && request.URL.Query().Get("watch") == "true" && strings.HasSuffix(request.URL.Path, f.resource) {
			response.Body = &delayedBody{ReadCloser: response.Body, f: f, ctx: request.Context()}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

type delayedBody struct {
	io.ReadCloser
	f   *delayedWatch
	ctx context.Context //nolint:containedctx // of the watch
}

func (b *delayedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case <-b.f.held:
	default:
		return n, err
	}
	select {
	case <-b.f.released:
		return n, err
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

// TestAnOutdatedMapEndsNoPod checks that an outdated NamespaceMap, which the cache may contain for some seconds, does
// not end a running pod.
func TestAnOutdatedMapEndsNoPod(t *testing.T) {
	t.Parallel()
	maps := delay("namespacemaps")
	l := newLab(t, func(o *reflection.Options) {
		o.MapGrace = time.Millisecond
		o.Local.Wrap(maps.wrap)
	})
	l.MapNamespaces(nil)
	l.Start()
	l.Pod("waits") // the rejection of this pod shows that the map has been read
	l.Present(l.Local, "Pod", l.Namespace, "waits", reflectiontest.Field("status.reason", "OffloadingBackOff"))
	maps.hold()
	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
	l.Pod("runs")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "runs", "{status: "+running(0)+"}", "status")
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "runs", reflectiontest.Field("status.phase", "Running"))
	maps.release()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "runs")
}
