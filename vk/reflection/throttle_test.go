// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

var errNoRequest = errors.New("nothing was requested yet")

// throttle is a transport that responds to requests for one object with the status 429, as API priority and fairness
// does, while it is switched on.
type throttle struct {
	on    atomic.Bool
	count atomic.Int64
}

func (y *throttle) wrap(retryAfter string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if !y.on.Load() || !strings.HasSuffix(request.URL.Path, "/configmaps/limited") {
				return next.RoundTrip(request)
			}
			y.count.Add(1)
			answer := &http.Response{StatusCode: http.StatusTooManyRequests, Status: "429 Too Many Requests", Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Request: request,
				Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(strings.NewReader("Too many requests, please try again later.\n"))}
			if retryAfter != "" {
				answer.Header.Set("Retry-After", retryAfter)
			}
			return answer, nil
		})
	}
}

// TestThrottledRequests checks that an API server that limits requests delays only the limited object, and not the
// worker: other objects of the kind are reflected in the meantime. The request must be repeated after the delay in
// the response, and must count neither as an outage nor as a slow webhook. If the limit lasts, an Event must report
// it.
func TestThrottledRequests(t *testing.T) {
	t.Parallel()
	for name, retryAfter := range map[string]string{"with Retry-After": "1", "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limited := &throttle{}
			limited.on.Store(true)
			l := newLab(t, func(o *reflection.Options) {
				o.Kinds, o.Workers = reflectiontest.Kinds(reflection.ConfigMapKind), map[string]int{reflection.ConfigMapKind: 1}
				o.Remote.Wrap(limited.wrap(retryAfter))
			})
			l.start()
			since := time.Now()
			l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: limited}, data: {a: b}}`)
			l.Eventually(func() error {
				if limited.count.Load() == 0 {
					return errNoRequest
				}
				return nil
			})
			l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {a: b}}`)
			l.Present(l.Remote, "ConfigMap", l.RemoteNS, "other")
			if waited := time.Since(since); waited > 5*time.Second {
				t.Errorf("another object has waited %s for one that is limited", waited)
			}
			if !l.Manager.Reachable() {
				t.Error("an API server that limits requests is thought to be away")
			}
			if events := l.Events(l.Namespace, "ConfigMap", "limited"); len(events) > 0 && time.Since(since) < 9*time.Second {
				t.Errorf("a moment has made the Events %q", events)
			}
			l.Event(l.Namespace, "ConfigMap", "limited", "Warning", failure.ThrottledReason, "429", l.ID)
			if most := int64(time.Since(since)/time.Second) + 2; limited.count.Load() > most {
				t.Errorf("%d requests in %s, want one a second at most", limited.count.Load(), time.Since(since))
			}
			limited.on.Store(false)
			l.Present(l.Remote, "ConfigMap", l.RemoteNS, "limited")
		})
	}
}
