// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rewind

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTransport checks with stubbed responses which watches fail with 410 Gone, and how many requests are sent.
// (TestEtcdIsRestored tests the processes with a real API server whose etcd is restored with etcdutl.)
func TestTransport(t *testing.T) {
	const list, forbidden = `{"metadata": {"resourceVersion": "%s"}}`, "403"
	const watch = "/api/v1/namespaces/a/pods?watch=true&resourceVersion=100&fieldSelector=x%3Dy&labelSelector=z&allowWatchBookmarks=true"
	for name, tc := range map[string]struct {
		url     string
		answers []string // stubbed responses: the version that a list returns, "watch", or a status code
		status  int
		asked   int
	}{
		"older":                   {watch, []string{"99"}, 410, 1},
		"as old":                  {watch, []string{"100", "watch"}, 200, 2},
		"newer":                   {watch, []string{"1000", "watch"}, 200, 2},
		"no number":               {watch, []string{"abc", "watch"}, 200, 2},
		"just starting, older":    {watch, []string{forbidden, "watch", "99"}, 410, 3},
		"just starting, newer":    {watch, []string{forbidden, "watch", "101"}, 200, 3},
		"forbidden":               {watch, []string{forbidden, forbidden}, 403, 2},
		"may watch, may not list": {watch, []string{forbidden, "watch", forbidden}, 200, 3},
		"busy":                    {watch, []string{"429"}, 429, 1},
		"a first watch":           {"/api/v1/pods?watch=true&resourceVersion=0", []string{"watch"}, 200, 1},
		"initial events":          {"/api/v1/pods?watch=true&resourceVersion=100&sendInitialEvents=true", []string{"watch"}, 200, 1},
		"a list":                  {"/api/v1/pods?resourceVersion=100", []string{"100"}, 200, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				query := r.URL.Query()
				if query.Get("limit") == "1" {
					if query.Has("watch") || query.Has("resourceVersion") || query.Has("labelSelector") || query.Get("fieldSelector") != "x=y" {
						t.Errorf("the version was asked for by %s", r.URL)
					}
				}
				answer := tc.answers[len(asked)]
				asked = append(asked, r.URL.String())
				switch answer {
				case "watch":
					_, _ = io.WriteString(w, "{}")
				case "403":
					w.WriteHeader(http.StatusForbidden)
				case "429":
					w.WriteHeader(http.StatusTooManyRequests)
				default:
					_, _ = fmt.Fprintf(w, list, answer)
				}
			}))
			defer server.Close()
			client := &http.Client{Transport: Transport(http.DefaultTransport)}
			response, err := client.Get(server.URL + tc.url)
			require.NoError(t, err)
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if response.StatusCode != tc.status || len(asked) != tc.asked {
				t.Errorf("status %d after %q, want %d after %d", response.StatusCode, asked, tc.status, tc.asked)
			}
			if tc.status == http.StatusGone && !strings.Contains(string(body), `"reason":"Expired"`) {
				t.Errorf("the answer is %s", body)
			}
		})
	}
}
