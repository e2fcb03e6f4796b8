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

// Limits of one response, and of a watch until the next list. 0 is no limit.
type Limits struct {
	// Bytes of the body, after decompression.
	Bytes int64
	// Values is the number of JSON objects, lists and their elements: decoded, each takes 50 to 500 bytes, however short it is written.
	Values int64
	// Items of a list.
	Items int64
}

// bounded fails responses that exceed the limits before they are decoded: caches are filled from them, and the server is not trusted
// with this process's memory. A watch has no end, so it fails as well once it has delivered that much. Its client then lists everything
// again: a cache holds what one list and one watch deliver, at most.
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

// acceptJSON asks for JSON alone, whose values can be counted, where clients prefer another encoding.
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

// isJSON reports whether a client decodes the response as JSON, which it does by default.
func isJSON(response *http.Response) bool {
	kind := response.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(kind)
	return kind == "" || err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// boundedBody fails once more was read than the limits allow.
type boundedBody struct {
	io.ReadCloser
	limits   Limits
	isText   bool // in an encoding whose values are not counted
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
		p = p[:left+1] // one more shows that there is more
	}
	n, err := b.ReadCloser.Read(p)
	b.meter.Count(p[:n])
	if b.isText {
		// In protobuf and YAML a value takes two bytes or more.
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
