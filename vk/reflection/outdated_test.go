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

// frost keeps what the watches of one resource bring from freeze until thaw, so that a cache stays behind the API server.
type frost struct {
	resource     string
	cold, warm   chan struct{}
	freeze, thaw func()
}

func frostOn(resource string) *frost {
	f := &frost{resource: "/" + resource, cold: make(chan struct{}), warm: make(chan struct{})}
	f.freeze, f.thaw = sync.OnceFunc(func() { close(f.cold) }), sync.OnceFunc(func() { close(f.warm) })
	return f
}

// wrap is a transport.WrapperFunc.
func (f *frost) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && request.URL.Query().Get("watch") == "true" && strings.HasSuffix(request.URL.Path, f.resource) {
			response.Body = &frozenBody{ReadCloser: response.Body, f: f, ctx: request.Context()}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

type frozenBody struct {
	io.ReadCloser
	f   *frost
	ctx context.Context //nolint:containedctx // of the watch
}

func (b *frozenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case <-b.f.cold:
	default:
		return n, err
	}
	select {
	case <-b.f.warm:
		return n, err
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

// A pod that runs is not ended because of a map that is outdated: the cache may show that of before for some seconds.
func TestAnOutdatedMapEndsNoPod(t *testing.T) {
	t.Parallel()
	maps := frostOn("namespacemaps")
	l := newLab(t, func(o *reflection.Options) {
		o.MapGrace = time.Millisecond
		o.Local.Wrap(maps.wrap)
	})
	l.MapNamespaces(nil)
	l.Start()
	l.Pod("waits") // until this is refused, the map has been read
	l.Present(l.Local, "Pod", l.Namespace, "waits", reflectiontest.Field("status.reason", "OffloadingBackOff"))
	maps.freeze()
	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
	l.Pod("runs")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "runs", "{status: "+running(0)+"}", "status")
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "runs", reflectiontest.Field("status.phase", "Running"))
	maps.thaw()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "runs")
}
