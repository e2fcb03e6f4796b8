// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
)

// Peer is the cluster that a kubeconfig must lead to.
type Peer struct {
	// ClusterID is the ID of the peer.
	ClusterID string
	// TenantNamespace is the namespace of this cluster on the peer. It contains a Lease with the peer's ID.
	TenantNamespace string
}

// WrongClusterError means that a kubeconfig leads to another cluster than the expected one.
type WrongClusterError struct{ Found, Expected string }

func (e *WrongClusterError) Error() string {
	return fmt.Sprintf("belongs to cluster %q, not %q: replace the kubeconfig with one for %q; no requests are sent until then", e.Found, e.Expected, e.Expected)
}

const (
	// confirmationPeriod is how long a confirmed ID is trusted. After that, the address may belong to another
	// cluster.
	confirmationPeriod = time.Minute
	// unknownIdentityPeriod is how long an API server without an ID is trusted. It may have just started and
	// temporarily deny the request, or the first heartbeat might not be annotated yet.
	unknownIdentityPeriod = 10 * time.Second
	// wrongClusterRetryInterval is how often a wrong cluster is checked again.
	wrongClusterRetryInterval = 5 * time.Second
	// mostIdentity is the maximum size of the response with the ID, in bytes.
	mostIdentity = 64 << 10
	// identityTimeout limits the request for the cluster ID. Other requests wait for it.
	identityTimeout = 10 * time.Second
)

// Expect makes all requests fail if the API server is found to belong to another cluster than the peer. A cluster that
// reports no ID, for example because it runs Liqo, is trusted, and asked again later. Expect must be called before the
// first request. It sends no request itself.
func (c *Connection) Expect(peer Peer) { c.peer.Store(&peer) }

// guard is a transport that sends requests only if the API server was confirmed as the expected one. It is safe for
// concurrent use.
type guard struct {
	expected func() *Peer // expected returns the expected peer, or nil if any cluster is accepted
	server   *url.URL
	next     http.RoundTripper

	asking singleflight.Group

	mu    sync.Mutex
	until time.Time
	known error // result of the last check; valid until the time in until
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := g.checkPeer(request.Context()); err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // a RoundTripper must close the body, even if it sends nothing
		}
		return nil, err
	}
	return g.next.RoundTrip(request)
}

// checkPeer determines the ID of the server, unless it is known. Concurrent requests wait for the same result.
func (g *guard) checkPeer(ctx context.Context) error {
	peer := g.expected()
	if peer == nil {
		return nil
	}
	g.mu.Lock()
	known, fresh := g.known, time.Now().Before(g.until)
	g.mu.Unlock()
	if fresh {
		return known
	}
	asked := g.asking.DoChan("", func() (any, error) { return nil, g.requestIdentity(context.WithoutCancel(ctx), peer) })
	select {
	case <-ctx.Done():
		return ctx.Err()
	case answer := <-asked:
		return answer.Err
	}
}

// requestIdentity reads the cluster ID from the server, and stores the result.
func (g *guard) requestIdentity(ctx context.Context, peer *Peer) error {
	found, err := g.readIdentity(ctx, peer.TenantNamespace)
	if err != nil {
		return fmt.Errorf("reading the cluster ID of the API server, %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	switch found {
	case peer.ClusterID:
		g.known, g.until = nil, now.Add(confirmationPeriod)
	case "":
		g.known, g.until = nil, now.Add(unknownIdentityPeriod)
	default:
		g.known, g.until = &WrongClusterError{Found: found, Expected: peer.ClusterID}, now.Add(wrongClusterRetryInterval)
	}
	return g.known
}

// readIdentity returns the ID of the cluster, or an empty string if the cluster does not report one.
func (g *guard) readIdentity(ctx context.Context, tenantNamespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	path := g.server.JoinPath("apis/coordination.k8s.io/v1/namespaces", tenantNamespace, "leases", wire.HeartbeatLease).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", "application/json")
	response, err := g.next.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // the answer was read
	body, err := io.ReadAll(io.LimitReader(response.Body, mostIdentity))
	if err != nil {
		return "", err
	}
	switch code := response.StatusCode; {
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return "", fmt.Errorf("it returned %d %s", code, http.StatusText(code))
	case code != http.StatusOK: // the cluster reports no ID, or the actual request will show the problem
		return "", nil
	}
	var lease metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &lease); err != nil {
		return "", errors.New("its response is not JSON: another service responds there, check the server of the kubeconfig")
	}
	return lease.Annotations[wire.ClusterIDAnnotation], nil
}
