// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"bytes"
	"cmp"
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
	// MaxModuleBytes is the maximum size of a module. It is also the default limit of the plugin host.
	MaxModuleBytes = 32 << 20
	// maxManifestBytes limits all responses except blobs: manifests, indices, lists of referrers, and tokens.
	maxManifestBytes = 4 << 20
	// maxSignatureManifestBytes limits the manifests of signatures. It is smaller, because there may be many of them.
	maxSignatureManifestBytes = 256 << 10
	// maxArchiveBytes limits a layer, which may be slightly larger than the module in it.
	maxArchiveBytes = MaxModuleBytes + 1<<20
	// defaultFetchTimeout is sufficient for the largest module at 1 Mbit/s.
	defaultFetchTimeout = 5 * time.Minute
	// defaultStallTimeout is shorter than the usual timeouts of proxies.
	defaultStallTimeout = 30 * time.Second
	// unsetTimeout is the timeout of a body until its actual timeout is set, which happens immediately.
	unsetTimeout = time.Hour
	// minBytesPerSecond is the minimum average rate of a server during a StallTimeout.
	minBytesPerSecond = 32 << 10
)

// Options configure fetches.
type Options struct {
	// InsecureRegistries are the registries, as host or host:port, that may be accessed over HTTP without TLS.
	InsecureRegistries []string
	// StallTimeout limits how long a server may send nothing, or less than minBytesPerSecond on average. The default is 30 s.
	StallTimeout time.Duration
	// Budget is how long all requests for a module and its signatures may take together; 0 is 5 minutes.
	Budget time.Duration
}

func (o Options) budget() time.Duration { return cmp.Or(o.Budget, defaultFetchTimeout) }

func (o Options) stallTimeout() time.Duration {
	return cmp.Or(o.StallTimeout, defaultStallTimeout)
}

// isInsecure reports whether HTTP without TLS is allowed for a host with its port.
func (o Options) isInsecure(host string) bool { return slices.Contains(o.InsecureRegistries, host) }

// base returns a transport that trusts the given CA certificates in PEM. If authorities is nil, the system's CAs are
// used.
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
		// Digests apply to the bytes as they are sent, so responses must not be decompressed.
		DisableCompression: true,
		// Fetches are rare, so connections are not kept.
		DisableKeepAlives: true,
	}, nil
}

// guard refuses requests without TLS and redirected requests with credentials in the body, and limits responses.
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
		return nil, &Error{
			Reason: Unavailable, Err: fmt.Errorf("%s is not https", request.URL.Host),
			remedy: "serve TLS there, or list the registry in --plugin-insecure-registries",
		}
	}
	// The body of such a request is the identity token. An http.Client removes only headers with credentials when it
	// follows a redirect to another host.
	if from := request.Response; from != nil && request.Method == http.MethodPost && from.Request.URL.Host != request.URL.Host {
		return nil, &Error{
			Reason: ForbiddenRedirect,
			Err:    fmt.Errorf("%s redirects a request with credentials to %s", from.Request.URL.Host, request.URL.Host),
			remedy: tokenFormRemedy,
		}
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

// limitKey is the key of the context value with the maximum size of the response to a request.
type limitKey struct{}

func withLimit(ctx context.Context, most int64) context.Context {
	return context.WithValue(ctx, limitKey{}, most)
}

// limitOf returns the maximum size of the response to a request. If its context has no limit, a request that follows a
// redirect counts as a request for a blob, because registries redirect such requests.
func limitOf(request *http.Request) int64 {
	if most, ok := request.Context().Value(limitKey{}).(int64); ok {
		return most
	}
	if request.Response != nil || strings.Contains(request.URL.Path, "/blobs/") {
		return maxArchiveBytes
	}
	return maxManifestBytes
}

func tooLarge(request *http.Request, most int64) error {
	return Errorf(TooLarge, "the response of %s has more than %d bytes, the maximum", request.URL.Host, most)
}

// limitedBody is a body that returns an error if it is too large, or if its bytes arrive too slowly.
type limitedBody struct {
	io.ReadCloser
	request *http.Request
	left    atomic.Int64
	most    int64
	seen    int64 // bytes received as of the last call of the method watch
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc
	ctx     context.Context //nolint:containedctx // of this request
}

func newLimitedBody(body io.ReadCloser, request *http.Request, most int64, timeout time.Duration, cancel context.CancelCauseFunc, ctx context.Context) *limitedBody {
	b := &limitedBody{ReadCloser: body, request: request, most: most, timeout: timeout, cancel: cancel, ctx: ctx}
	b.left.Store(most)
	b.timer = time.AfterFunc(unsetTimeout, b.watch)
	b.timer.Reset(timeout) // set last, because watch uses b.timer
	return b
}

// watch cancels a response if too few bytes have arrived since the last call of watch.
func (b *limitedBody) watch() {
	read := b.most - b.left.Load()
	if float64(read-b.seen) < minBytesPerSecond*b.timeout.Seconds() {
		b.cancel(Errorf(Stalled, "%s sent %d bytes in %s, less than %d per second", b.request.URL.Host, read-b.seen, b.timeout, minBytesPerSecond))
		return
	}
	b.seen = read
	b.timer.Reset(b.timeout)
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left.Add(int64(-n)) < 0 {
		return 0, tooLarge(b.request, b.most)
	}
	if err != nil { // includes io.EOF, because a canceled response may end like a complete one
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// limitedReader returns an error if the content exceeds the maximum length (most, in bytes). what names the content in
// the error.
type limitedReader struct {
	io.Reader
	read, most int64
	what       string
}

func limit(r io.Reader, most int64, what string) *limitedReader {
	return &limitedReader{Reader: r, most: most, what: what}
}

// Read implements io.Reader.
func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if l.read += int64(n); l.read > l.most {
		return 0, Errorf(TooLarge, "%s has more than %d bytes, the maximum", l.what, l.most)
	}
	return n, err
}

// readAll reads all of r, and returns an error if the content exceeds the maximum length (most, in bytes). what names
// the content, and size is its expected size.
func readAll(r io.Reader, size, most int64, what string) ([]byte, error) {
	data := bytes.NewBuffer(make([]byte, 0, min(max(size, 0), most)+bytes.MinRead))
	if _, err := data.ReadFrom(limit(r, most, what)); err != nil {
		return nil, fmt.Errorf("reading %s, %w", what, err)
	}
	return data.Bytes(), nil
}
