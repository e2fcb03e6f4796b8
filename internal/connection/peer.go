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

// Peer is the cluster that a kubeconfig is meant for.
type Peer struct {
	// ClusterID of it.
	ClusterID string
	// TenantNamespace of this cluster on the provider, with the Lease that has the peer's id.
	TenantNamespace string
}

// WrongClusterError is returned if a kubeconfig leads to a cluster other than the expected one.
type WrongClusterError struct{ Found, Expected string }

func (e *WrongClusterError) Error() string {
	return fmt.Sprintf("belongs to cluster %q, not %q: replace the kubeconfig with one for %q; no requests are sent until then", e.Found, e.Expected, e.Expected)
}

const (
	// confirmation is how long an id that was found counts: an address may come to lead elsewhere.
	confirmation = time.Minute
	// benefit is how long an API server counts that reports no id. It may be one that has just started, and denies what it allows in a
	// moment, or one whose first heartbeat was not annotated yet.
	benefit = 10 * time.Second
	// refusal is when a cluster that is the wrong one is asked again.
	refusal = 5 * time.Second
	// mostIdentity bounds the response with the id, in bytes.
	mostIdentity = 64 << 10
	// identityTimeout bounds a request that others wait for.
	identityTimeout = 10 * time.Second
)

// Expect allows requests only while the API server belongs to the peer, as far as this can be determined: other implementations report
// no id, and are trusted. It must be called before the first request, and makes none.
func (c *Connection) Expect(peer Peer) { c.peer.Store(&peer) }

// guard lets requests through once the API server is known to be the expected one. Safe for concurrent use.
type guard struct {
	expected func() *Peer // nil: any
	server   *url.URL
	next     http.RoundTripper

	asking singleflight.Group

	mu    sync.Mutex
	until time.Time
	known error // until then
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := g.check(request.Context()); err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // as the interface has it; nothing was sent
		}
		return nil, err
	}
	return g.next.RoundTrip(request)
}

// check asks which cluster the server belongs to if that is not known. Requests that come meanwhile wait for the same answer.
func (g *guard) check(ctx context.Context) error {
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
	asked := g.asking.DoChan("", func() (any, error) { return nil, g.ask(context.WithoutCancel(ctx), peer) })
	select {
	case <-ctx.Done():
		return ctx.Err()
	case answer := <-asked:
		return answer.Err
	}
}

// ask the server for its cluster id, and remember the result.
func (g *guard) ask(ctx context.Context, peer *Peer) error {
	found, err := g.identity(ctx, peer.TenantNamespace)
	if err != nil {
		return fmt.Errorf("reading the cluster ID of the API server, %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	switch found {
	case peer.ClusterID:
		g.known, g.until = nil, now.Add(confirmation)
	case "":
		g.known, g.until = nil, now.Add(benefit)
	default:
		g.known, g.until = &WrongClusterError{Found: found, Expected: peer.ClusterID}, now.Add(refusal)
	}
	return g.known
}

// identity returns the id of the cluster, "" when it reports none.
func (g *guard) identity(ctx context.Context, tenantNamespace string) (string, error) {
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
	case code != http.StatusOK: // it reports none, or what is wrong is seen by the request itself
		return "", nil
	}
	var lease metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &lease); err != nil {
		return "", errors.New("its response is not JSON: another service responds there, check the server of the kubeconfig")
	}
	return lease.Annotations[wire.ClusterIDAnnotation], nil
}
