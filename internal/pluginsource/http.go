// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
)

// maxRedirects of a web server.
const maxRedirects = 3

// HTTP is a module on a web server.
type HTTP struct {
	URL string
	// SHA256 of the module, in hexadecimal digits.
	SHA256 string
	// Authorities are the certificate authorities of the server in PEM. Nil: the authorities of the system.
	Authorities []byte
}

// Fetch returns the module, whose sha256 is the expected one.
func (h HTTP) Fetch(ctx context.Context, options Options) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, options.budget())
	defer cancel()
	wasm, err := h.get(ctx, options)
	if err != nil {
		return nil, classify(err)
	}
	if err := CheckDigest(wasm, h.SHA256); err != nil {
		return nil, err
	}
	return wasm, nil
}

func (h HTTP) get(ctx context.Context, options Options) ([]byte, error) {
	base, err := options.base(h.Authorities)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &guard{next: base, options: Options{StallTimeout: options.StallTimeout}}, CheckRedirect: checkRedirect}
	request, err := http.NewRequestWithContext(withLimit(ctx, maxArchiveBytes), http.MethodGet, h.URL, nil)
	if err != nil {
		return nil, Errorf(InvalidSource, "spec.source.http.url: %w", err)
	}
	request.Header.Set("User-Agent", userAgent)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, Errorf(reasonOf(response.StatusCode), "GET %s: %s", redacted(request.URL), response.Status)
	}
	return readAll(response.Body, response.ContentLength, MaxModuleBytes, "the module")
}

const userAgent = "refract-controller-manager"

// checkRedirect allows a few redirects to the same host; guard checks that they lead to https.
func checkRedirect(request *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return Errorf(ForbiddenRedirect, "%s redirects more than %d times", via[0].URL.Host, maxRedirects)
	}
	if request.URL.Host != via[0].URL.Host {
		return Errorf(ForbiddenRedirect, "%s redirects to another host, %s", via[0].URL.Host, request.URL.Host)
	}
	return nil
}

// redacted returns the URL without a password or a query, which may have a token.
func redacted(u *url.URL) string {
	short := *u
	short.User, short.RawQuery = nil, ""
	return short.String()
}

// CheckDigest returns an error unless the sha256 of the module is want, in hexadecimal digits.
func CheckDigest(wasm []byte, want string) error {
	if got := Digest(wasm); got != want {
		return Errorf(DigestMismatch, "the sha256 of the module is %s, not %s", got, want)
	}
	return nil
}

// Digest returns the sha256 of a module in hexadecimal digits.
func Digest(wasm []byte) string {
	sum := sha256.Sum256(wasm)
	return hex.EncodeToString(sum[:])
}
