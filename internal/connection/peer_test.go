// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/api/wire"
)

// claimant is an API server that reports the cluster ID that the test sets, and counts all other requests.
type claimant struct {
	code     int
	lease    string
	identity atomic.Int32
	others   atomic.Int32
}

func (c *claimant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/namespaces/liqo-tenant-rome/leases/"+wire.HeartbeatLease) {
		c.identity.Add(1)
		w.WriteHeader(c.code)
		_, _ = io.WriteString(w, c.lease)
		return
	}
	c.others.Add(1)
	_, _ = io.WriteString(w, "ok")
}

func leaseOf(cluster string) string {
	return `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"annotations":{"` + wire.ClusterIDAnnotation + `":"` + cluster + `"}}}`
}

func TestNothingIsSentToTheWrongCluster(t *testing.T) {
	for _, test := range []struct {
		name      string
		code      int
		lease     string
		wantError string
	}{
		{"it is the one", 200, leaseOf("milan"), ""},
		{"it reports none", 200, `{"metadata":{}}`, ""},
		{"it has no such Lease", 404, `{}`, ""},
		{"it may not be read", 403, `{}`, ""},
		{"credentials have expired, which the request itself shows", 401, `{}`, ""},
		{"it is another one", 200, leaseOf("turin"), `belongs to cluster "turin", not "milan"`},
		{"it is in trouble", 500, `{}`, "500 Internal Server Error"},
		{"it is busy", 429, `{}`, "429 Too Many Requests"},
		{"it is a web page", 200, "<html>", "check the server of the kubeconfig"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := &claimant{code: test.code, lease: test.lease}
			at := httptest.NewServer(server)
			defer at.Close()
			conn, err := New(&rest.Config{Host: at.URL}, Limits{Bytes: 1 << 20})
			require.NoError(t, err)
			conn.Expect(Peer{ClusterID: "milan", TenantNamespace: "liqo-tenant-rome"})
			for _, transport := range []http.RoundTripper{conn.Config().Transport, conn.Streams()} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, conn.URL().JoinPath("api").String(), strings.NewReader("{}"))
				require.NoError(t, err)
				response, err := transport.RoundTrip(request)
				if test.wantError != "" {
					require.ErrorContains(t, err, test.wantError)
					continue
				}
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
			}
			want := int32(2)
			if test.wantError != "" {
				want = 0
			}
			assert.Equal(t, want, server.others.Load(), "requests that got through")
		})
	}
}

func TestIdentityIsAskedForOncePerKubeconfig(t *testing.T) {
	server, other := &claimant{code: 200, lease: leaseOf("milan")}, &claimant{code: 200, lease: leaseOf("turin")}
	at, elsewhere := httptest.NewServer(server), httptest.NewServer(other)
	defer at.Close()
	defer elsewhere.Close()
	conn, err := New(&rest.Config{Host: at.URL}, Limits{Bytes: 1 << 20})
	require.NoError(t, err)
	conn.Expect(Peer{ClusterID: "milan", TenantNamespace: "liqo-tenant-rome"})
	ask := func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, conn.URL().JoinPath("api").String(), nil)
		require.NoError(t, err)
		response, err := conn.Config().Transport.RoundTrip(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	for range 10 {
		require.NoError(t, ask())
	}
	assert.Equal(t, int32(1), server.identity.Load())
	require.NoError(t, conn.Update(&rest.Config{Host: elsewhere.URL}))
	var wrong *WrongClusterError
	require.ErrorAs(t, ask(), &wrong)
	assert.Zero(t, other.others.Load(), "requests that got through")
	require.NoError(t, conn.Update(&rest.Config{Host: at.URL}))
	require.NoError(t, ask(), "the right kubeconfig is used at once")
}
