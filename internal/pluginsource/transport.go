// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// MaxModuleBytes is the maximum size of a module, the default limit of the host.
	MaxModuleBytes = 32 << 20
	// maxManifestBytes limits responses other than blobs: manifests, indices, lists of referrers, tokens.
	maxManifestBytes = 4 << 20
	// maxArchiveBytes limits a layer, which may be a little larger than the module in it.
	maxArchiveBytes = MaxModuleBytes + 1<<20
	// fetchTimeout limits a fetch with all its requests.
	fetchTimeout = 5 * time.Minute
	// defaultStallTimeout is shorter than the timeout of common proxies.
	defaultStallTimeout = 30 * time.Second
)

// Options configure fetches.
type Options struct {
	// InsecureRegistries are the registries, as host or host:port, that may be accessed with HTTP without TLS.
	InsecureRegistries []string
	// StallTimeout limits how long a server may send nothing. The default is 30 s.
	StallTimeout time.Duration
}

func (o Options) stallTimeout() time.Duration {
	if o.StallTimeout > 0 {
		return o.StallTimeout
	}
	return defaultStallTimeout
}

// isInsecure reports whether HTTP without TLS is allowed for a host with its port.
func (o Options) isInsecure(host string) bool { return slices.Contains(o.InsecureRegistries, host) }

// base returns a transport that trusts the given CA certificates in PEM. If nil, the system's CAs are used.
func (o Options) base(authorities []byte) (*http.Transport, error) {
	var roots *x509.CertPool
	if authorities != nil {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(authorities) {
			return nil, Errorf(InvalidSecret, "caSecret has no certificate in PEM under ca.crt")
		}
	}
	timeout := o.stallTimeout()
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: timeout}).DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    timeout,
		ResponseHeaderTimeout:  timeout,
		MaxResponseHeaderBytes: 1 << 20,
		// Digests apply to the bytes on the wire.
		DisableCompression: true,
		// Fetches are rare, so connections are not kept.
		DisableKeepAlives: true,
	}, nil
}

// guard refuses requests without TLS, and limits responses.
type guard struct {
	next    http.RoundTripper
	options Options
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" && !g.options.isInsecure(request.URL.Host) {
		if request.Response != nil {
			return nil, Errorf(ForbiddenRedirect, "%s redirects to %s://%s, which is not https", request.Response.Request.URL.Host, request.URL.Scheme, request.URL.Host)
		}
		return nil, Errorf(Unavailable, "%s is not https: serve TLS there, or list the registry in --plugin-insecure-registries", request.URL.Host)
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	response, err := g.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	most := limitOf(request)
	if response.ContentLength > most && request.Method != http.MethodHead {
		cancel(nil)
		_ = response.Body.Close()
		return nil, tooLarge(request, most)
	}
	response.Body = newLimitedBody(response.Body, request, most, g.options.stallTimeout(), cancel, ctx)
	return response, nil
}

// blobKey marks the context of requests for a module, independent of their path.
type blobKey struct{}

func withBlobLimit(request *http.Request) *http.Request {
	return request.WithContext(context.WithValue(request.Context(), blobKey{}, true))
}

// limitOf returns the maximum size of the response. Only requests for blobs are redirected.
func limitOf(request *http.Request) int64 {
	if request.Response != nil || request.Context().Value(blobKey{}) != nil || strings.Contains(request.URL.Path, "/blobs/") {
		return maxArchiveBytes
	}
	return maxManifestBytes
}

func tooLarge(request *http.Request, most int64) error {
	return Errorf(TooLarge, "the response of %s has more than %d bytes, the maximum", request.URL.Host, most)
}

// limitedBody returns an error when the body is too large, and when no bytes arrive for a while.
type limitedBody struct {
	io.ReadCloser
	request *http.Request
	left    atomic.Int64
	most    int64
	timeout time.Duration
	stalled *time.Timer
	cancel  context.CancelCauseFunc
	ctx     context.Context //nolint:containedctx // of this request
}

func newLimitedBody(body io.ReadCloser, request *http.Request, most int64, timeout time.Duration, cancel context.CancelCauseFunc, ctx context.Context) *limitedBody {
	b := &limitedBody{ReadCloser: body, request: request, most: most, timeout: timeout, cancel: cancel, ctx: ctx}
	b.left.Store(most)
	b.stalled = time.AfterFunc(timeout, func() {
		cancel(Errorf(Stalled, "%s sent nothing for %s", request.URL.Host, timeout))
	})
	return b
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	b.stalled.Reset(b.timeout)
	n, err := b.ReadCloser.Read(p)
	if b.left.Add(int64(-n)) < 0 {
		return 0, tooLarge(b.request, b.most)
	}
	if err != nil && err != io.EOF {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	b.stalled.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// readAll reads r, and returns an error if it has more than most bytes. The error names the content with what.
func readAll(r io.Reader, most int64, what string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s, %w", what, err)
	}
	if int64(len(data)) > most {
		return nil, Errorf(TooLarge, "%s has more than %d bytes, the maximum", what, most)
	}
	return data, nil
}
