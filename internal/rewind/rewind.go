// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rewind

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// maxAnswer limits how much of the response to a list of one object's metadata is read, in bytes. It is many times the
// maximum size of an object in an API server.
const maxAnswer = 8 << 20

// metadataOnly is an Accept header that requests only the metadata of objects, to keep the response small.
const metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// Wrap makes every client of config list all objects again after the storage of its API server was rolled back.
func Wrap(config *rest.Config) { config.Wrap(Transport) }

// Transport returns a RoundTripper that detects a rolled back storage. Before a watch is resumed, it compares the
// resource version of the watch with the current version of the storage. It is safe for concurrent use.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next: next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	known := resumedVersion(request.Method, request.URL.Query())
	if known == 0 {
		return t.next.RoundTrip(request)
	}
	answer, err := t.checkVersion(request, known)
	switch {
	case err != nil:
		return nil, err
	case answer == nil:
		return t.next.RoundTrip(request)
	case answer.StatusCode != http.StatusForbidden:
		return answer, nil
	}
	// An API server that has just started may forbid the list for a moment. Therefore the list is repeated after the
	// watch has been accepted. The list is not simply sent after each watch, because some proxies send the response
	// headers of a watch only with its first event.
	_ = answer.Body.Close()
	watch, err := t.next.RoundTrip(request)
	if err != nil || watch.StatusCode != http.StatusOK {
		return watch, err
	}
	answer, err = t.checkVersion(request, known)
	// A client that may watch but not list cannot check the version.
	if err == nil && (answer == nil || answer.StatusCode == http.StatusForbidden) {
		if answer != nil {
			_ = answer.Body.Close()
		}
		return watch, nil
	}
	_ = watch.Body.Close()
	return answer, err
}

// checkVersion reads the current version of the storage with a list. It returns nil if this version is not lower than
// known or cannot be compared, and a 410 Gone otherwise. If the list fails, it returns the error response of the API
// server. A non-nil response replaces the response to the watch.
func (t *transport) checkVersion(watch *http.Request, known uint64) (answer *http.Response, err error) {
	query := watch.URL.Query()
	for _, key := range []string{"watch", "resourceVersion", "resourceVersionMatch", "allowWatchBookmarks", "timeoutSeconds", "labelSelector"} {
		query.Del(key)
	}
	query.Set("limit", "1")
	list := watch.Clone(watch.Context())
	list.URL.RawQuery = query.Encode()
	list.Header.Set("Accept", metadataOnly)
	response, err := t.next.RoundTrip(list)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	defer func() {
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // the connection is reused only if the whole body was read
		_ = response.Body.Close()
	}()
	var said struct{ Metadata metav1.ListMeta }
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&said); err != nil {
		return nil, fmt.Errorf("reading the version of %s, %w", watch.URL.Path, err)
	}
	present, err := strconv.ParseUint(said.Metadata.ResourceVersion, 10, 64)
	if err != nil || present >= known {
		return nil, nil // versions that are not numbers cannot be compared
	}
	slog.Warn("The storage of the API server was rolled back, such as by an etcd restore: listing everything again",
		"server", watch.URL.Host, "resource", watch.URL.Path, "known", known, "present", present)
	return goneResponse(watch, known, present)
}

// resumedVersion returns the resource version at which a watch is resumed. It returns 0 if the request does not resume
// a watch.
func resumedVersion(method string, query url.Values) uint64 {
	if method != http.MethodGet || query.Get("sendInitialEvents") == "true" {
		return 0
	}
	if watch, _ := strconv.ParseBool(query.Get("watch")); !watch {
		return 0
	}
	version, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	return version
}

// goneResponse returns the response with which an API server reports that a version is no longer available.
func goneResponse(request *http.Request, known, present uint64) (*http.Response, error) {
	body, err := json.Marshal(&metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
		Message: fmt.Sprintf("the storage was rolled back to resource version %d, the watch would have continued from %d", present, known),
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(http.StatusGone), StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Request: request,
	}, nil
}
