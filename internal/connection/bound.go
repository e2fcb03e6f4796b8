// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"

	"github.com/refract-project/refract/internal/jsoncost"
)

// Limits contains the limits of a response. For a watch, they apply to everything that is received before the client
// lists again. 0 means no limit.
type Limits struct {
	// Bytes is the maximum size of the body after decompression.
	Bytes int64
	// Values is the maximum of jsoncost.Cost.Values, which approximates the number of JSON objects, lists, fields and
	// list elements. Each of them takes 50 to 500 bytes after decoding, even if its text is short.
	Values int64
	// Items is the maximum number of items of a list.
	Items int64
}

// bounded is a transport that limits responses. If a response exceeds the limits, reading it fails before it is
// decoded. Responses fill caches, and an untrusted server must not determine how much memory this process uses. A watch
// is endless. It also fails when its total exceeds the limits, and the client then lists all objects again. A cache
// therefore contains at most the objects of one list and one watch.
type bounded struct {
	next   http.RoundTripper
	limits Limits
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	if b.limits.Values > 0 {
		request = acceptJSON(request)
	}
	response, err := b.next.RoundTrip(request)
	if err != nil || response.Body == nil {
		return response, err
	}
	response.Body = &boundedBody{ReadCloser: response.Body, limits: b.limits, isText: !isJSON(response), exceeded: func(limit string) error {
		err := fmt.Errorf("%s answers %s %s with more than %s, which is the limit", request.URL.Host, request.Method, request.URL.Path, limit)
		slog.Warn("Truncated a response", "err", err, "watch", request.URL.Query().Has("watch"))
		return err
	}}
	return response, nil
}

// acceptJSON returns a copy of the request that accepts only JSON, even if the client prefers another encoding. Values
// can be counted only in JSON.
func acceptJSON(request *http.Request) *http.Request {
	accept := request.Header.Get("Accept")
	var kept []string
	for kind := range strings.SplitSeq(accept, ",") {
		if strings.Contains(kind, "json") {
			kept = append(kept, kind)
		}
	}
	if only := strings.Join(kept, ","); only != "" && only != accept {
		request = request.Clone(request.Context())
		request.Header.Set("Accept", only)
	}
	return request
}

// isJSON reports whether the client will decode the response as JSON, which is the default.
func isJSON(response *http.Response) bool {
	kind := response.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(kind)
	return kind == "" || err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// boundedBody is a response body. Read fails when the content exceeds the limits.
type boundedBody struct {
	io.ReadCloser
	limits   Limits
	isText   bool // the body is not JSON, so the number of values is estimated from its size
	meter    jsoncost.Meter
	exceeded func(limit string) error
	err      error
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	left := b.limits.Bytes - b.meter.Bytes
	if b.limits.Bytes > 0 && int64(len(p)) > left+1 {
		p = p[:left+1] // one more byte, to notice that the limit is exceeded
	}
	n, err := b.ReadCloser.Read(p)
	b.meter.Count(p[:n])
	if b.isText {
		// In protobuf and YAML, a value takes at least two bytes.
		b.meter.Values = b.meter.Bytes / 2
	}
	switch {
	case isOver(b.meter.Values, b.limits.Values):
		b.err = b.exceeded(fmt.Sprintf("%d values", b.limits.Values))
	case isOver(b.meter.Items, b.limits.Items):
		b.err = b.exceeded(fmt.Sprintf("%d items", b.limits.Items))
	case isOver(b.meter.Bytes, b.limits.Bytes):
		b.err = b.exceeded(fmt.Sprintf("%d MiB", b.limits.Bytes>>20))
		return n - 1, b.err
	}
	if b.err != nil {
		return 0, b.err
	}
	return n, err
}

func isOver(count, limit int64) bool { return limit > 0 && count > limit }
