// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// silent is an API server that accepts every request and never responds.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestSilentProviderIsGivenUpOnceItCountsAsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, down := time.Now(), errors.New("does not answer")
		remote := Remote{Transport: silent{}, Unreachable: func() error {
			if time.Since(begin) < time.Minute {
				return nil // at this time, the provider still counts as reachable
			}
			return down
		}}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://milan/", nil)
		if _, err := (unreachableTransport{remote}).RoundTrip(request); !errors.Is(err, down) {
			t.Errorf("got %v, want %v", err, down)
		}
		if took := time.Since(begin); took > time.Minute+unreachableCheckInterval {
			t.Errorf("giving up took %s", took)
		}
	})
}

func TestSilentProviderIsNotAskedForLongWhosePodItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{NodeName: "milan", Pods: runningPods{}, Namespaces: shop{}, Remote: Remote{URL: &url.URL{Scheme: "https", Host: "milan"}, Transport: silent{}}})
		begin, answer := time.Now(), httptest.NewRecorder()
		s.serveSubresource("log", logQuery).ServeHTTP(answer, logsRequest("shop", "web"))
		if answer.Code != http.StatusBadGateway || !strings.Contains(answer.Body.String(), "does not answer within 10s") {
			t.Errorf("got %d %q", answer.Code, answer.Body)
		}
		if took := time.Since(begin); took > ownershipTimeout {
			t.Errorf("that took %s", took)
		}
	})
}
