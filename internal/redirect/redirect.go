// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package redirect prevents clients of an API server from following redirects to other servers.
//
// A net/http client follows redirects, and on status 307 or 308 it resends the method, the body and the credentials. An
// API server could therefore make the client send requests to any address in the client's network, and obtain Secrets
// and tokens in clear text. An API server has no legitimate reason to redirect a client to another server.
package redirect

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/printable"
)

// Error is the error for a request that would be redirected to another server.
type Error struct {
	// From and To are the two servers, with their schemes.
	From, To string
}

// mostServer limits the length of the other server's address in an Error, in bytes.
const mostServer = 200

func (e *Error) Error() string {
	return fmt.Sprintf("%s redirects to another server, %s: the redirect was not followed; set the server of the kubeconfig to the address of the API server itself", e.From, e.To)
}

// Check returns an Error if the URLs differ in their scheme, host or port.
func Check(from, to *url.URL) error {
	if from.Scheme == to.Scheme && hostOf(from) == hostOf(to) {
		return nil
	}
	return &Error{From: serverOf(from), To: serverOf(to)}
}

// hostOf returns the host and the port of a URL. The default is the port of the scheme.
func hostOf(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return host + ":" + port
}

func serverOf(u *url.URL) string {
	return printable.Shorten(printable.Line(u.Scheme+"://"+u.Host), mostServer)
}

// Refuse makes clients of config fail with an Error if the server redirects them to another scheme or host.
func Refuse(config *rest.Config) { config.Wrap(Transport) }

// Transport returns a RoundTripper for clients that follow redirects. It sends requests through next, except for a
// request that follows a redirect to another scheme or host. Such a request fails with an Error.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. If the request follows a redirect, request.Response is the response with the
// redirect.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if response := request.Response; response != nil && response.Request != nil {
		if err := Check(response.Request.URL, request.URL); err != nil {
			if request.Body != nil {
				_ = request.Body.Close() // a RoundTripper must close the body, even if it sends nothing
			}
			return nil, err
		}
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper returns the wrapped transport. client-go uses it to close idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
