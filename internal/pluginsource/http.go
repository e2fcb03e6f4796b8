// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// maxRedirects is the maximum number of redirects of a web server.
const maxRedirects = 3

// HTTP is a module on a web server.
type HTTP struct {
	URL string
	// SHA256 is the digest of the module in hexadecimal.
	SHA256 string
	// Authorities are the CA certificates of the server, in PEM. If it is nil, the system's CAs are used.
	Authorities []byte
}

// ParseURL parses the URL of a source. Like the result of ParseImage, the result has only one spelling for each file:
// a URL is refused if its path has parts that servers resolve or decode to another path.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The error does not contain err, which quotes the URL.
		return nil, Errorf(InvalidSource, "spec.source.http.url is not a URL")
	}
	if u.Scheme != "https" || u.User != nil {
		return nil, Errorf(InvalidSource, "spec.source.http.url: use an https URL without a user name and password")
	}
	if u.Host = NormalizeHost(u.Host); !isCanonicalHost(u.Host) {
		return nil, Errorf(InvalidSource, "spec.source.http.url: %q is not a host in its usual spelling, with or without a port", u.Host)
	}
	parts := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for n, part := range parts {
		decoded, err := url.PathUnescape(part)
		plain, _, _ := strings.Cut(decoded, ";") // some servers ignore the text after a semicolon
		if err != nil || plain == "." || plain == ".." || plain == "" && n < len(parts)-1 || strings.ContainsAny(decoded, `/\%`) {
			return nil, Errorf(InvalidSource, "spec.source.http.url: the part %q of the path has another meaning for servers: remove it, or write it without percent signs", part)
		}
	}
	return u, nil
}

// RedactURL returns a URL without user name, password, query and fragment, which may be secrets.
func RedactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a URL"
	}
	return redacted(u)
}

// Fetch returns the module. It fails if the sha256 is not the expected one.
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
	if _, err := ParseURL(h.URL); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(withLimit(ctx, maxArchiveBytes), http.MethodGet, h.URL, nil)
	if err != nil {
		return nil, Errorf(InvalidSource, "spec.source.http.url is not a URL")
	}
	request.Header.Set("User-Agent", userAgent)
	response, err := client.Do(request)
	if err != nil {
		return nil, redactError(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		failed := &Error{Reason: reasonOf(response.StatusCode), Err: fmt.Errorf("GET %s: %s", redacted(request.URL), response.Status)}
		if failed.Reason == Unauthorized {
			failed.remedy = "no credentials are sent to an http source: let the server serve the module without, or use an oci source with a pullSecret"
		}
		return nil, failed
	}
	return readAll(response.Body, response.ContentLength, MaxModuleBytes, "the module")
}

const userAgent = "refract-controller-manager"

// checkRedirect allows a few redirects to the same host. They must stay in or below the folder of the first URL,
// because a policy may apply to this folder. guard checks that they use https.
func checkRedirect(request *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects {
		return Errorf(ForbiddenRedirect, "%s redirects more than %d times", first.Host, maxRedirects)
	}
	if request.URL.Host != first.Host {
		return Errorf(ForbiddenRedirect, "%s redirects to another host, %s", first.Host, request.URL.Host)
	}
	if request.URL.Scheme != "https" {
		return nil // guard has returned a more precise error
	}
	if _, err := ParseURL(request.URL.String()); err != nil {
		return Errorf(ForbiddenRedirect, "%s redirects to %s, which cannot be a source", first.Host, redacted(request.URL))
	}
	if folder := strings.TrimSuffix(path.Dir("/"+strings.TrimPrefix(first.Path, "/")), "/") + "/"; !strings.HasPrefix(request.URL.Path, folder) {
		return Errorf(ForbiddenRedirect, "%s redirects to %s, out of the folder %s", first.Host, redacted(request.URL), folder)
	}
	return nil
}

// redactError removes secrets from the URL in an error of net/http.
func redactError(err error) error {
	var quoting *url.Error
	if errors.As(err, &quoting) {
		quoting.URL = RedactURL(quoting.URL)
	}
	return err
}

// redacted returns the URL without user name, password, query and fragment. The query may contain a token.
func redacted(u *url.URL) string {
	short := *u
	short.User, short.RawQuery, short.Fragment, short.RawFragment = nil, "", "", ""
	return short.String()
}

// CheckDigest returns an error unless the sha256 of the module is want, which is in hexadecimal.
func CheckDigest(wasm []byte, want string) error {
	if got := Digest(wasm); got != want {
		return Errorf(DigestMismatch, "the sha256 of the module is %s, not %s", got, want)
	}
	return nil
}

// Digest returns the sha256 of a module in hexadecimal.
func Digest(wasm []byte) string {
	sum := sha256.Sum256(wasm)
	return hex.EncodeToString(sum[:])
}
