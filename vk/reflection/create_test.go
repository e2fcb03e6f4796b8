// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// lookups counts the requests for single Services. If fussy is set, lookups rejects new objects that have a
// resourceVersion, as some API servers may do.
type lookups struct {
	http.RoundTripper
	gets  *atomic.Int32
	fussy *atomic.Bool
}

func (l lookups) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.Contains(request.URL.Path, "/services/") {
		return l.RoundTripper.RoundTrip(request)
	}
	switch {
	case request.Method == http.MethodGet:
		l.gets.Add(1)
	case request.Method == http.MethodPatch && l.fussy.Load():
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(body), "resourceVersion") {
			const conflict = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}`
			return &http.Response{StatusCode: http.StatusConflict, Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
				Body: io.NopCloser(strings.NewReader(conflict))}, nil
		}
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(strings.NewReader(string(body)))
	}
	return l.RoundTripper.RoundTrip(request)
}

// TestCreationTakesOneRequest checks that an object is created with one request, which cannot change an existing
// object. If the API server does not support this, a second request looks up the name first.
func TestCreationTakesOneRequest(t *testing.T) {
	t.Parallel()
	var gets atomic.Int32
	var fussy atomic.Bool
	l := newLab(t)
	l.Options.Remote = rest.CopyConfig(l.Options.Remote)
	l.Options.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper { return lookups{next, &gets, &fussy} })
	l.Start()
	for n := range 5 {
		l.Local.Create(t, l.Namespace, service(fmt.Sprintf("web-%d", n), ""))
		l.Present(l.Remote, "Service", l.RemoteNS, fmt.Sprintf("web-%d", n))
	}
	l.Settled()
	if n := gets.Load(); n > 0 {
		t.Errorf("five Services were looked for %d times", n)
	}

	foreign := l.Remote.Create(t, l.RemoteNS, service("theirs", ""))
	l.Local.Create(t, l.Namespace, service("theirs", ""))
	l.Event(l.Namespace, "Service", "theirs", "Warning FailedReflection", "is not managed by Refract")
	if now := l.Remote.Get(t, "Service", l.RemoteNS, "theirs"); now.GetResourceVersion() != foreign.GetResourceVersion() {
		t.Errorf("the Service of another client became %v", now.Object)
	}

	fussy.Store(true)
	l.Local.Create(t, l.Namespace, service("fussy", ""))
	l.Present(l.Remote, "Service", l.RemoteNS, "fussy")
}
