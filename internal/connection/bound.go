// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
)

// bounded ends answers that are larger than most bytes: caches are filled from them, and the server is not trusted with this
// process's memory. A watch goes on for as long as it likes, so it is ended, too, when it has brought that much. Its client
// then lists everything again: a cache holds what one list and one watch bring, at most.
type bounded struct {
	next http.RoundTripper
	most int64
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(request)
	if err != nil || response.Body == nil {
		return response, err
	}
	response.Body = &boundedBody{ReadCloser: response.Body, left: b.most, exceeded: func() error {
		err := fmt.Errorf("%s answers %s %s with more than %d MiB, which is the limit", request.URL.Host, request.Method, request.URL.Path, b.most>>20)
		slog.Warn("Truncated a response", "err", err, "watch", request.URL.Query().Has("watch"))
		return err
	}}
	return response, nil
}

// boundedBody fails after left bytes if there are more.
type boundedBody struct {
	io.ReadCloser
	left     int64
	exceeded func() error
	err      error
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more shows that there is more
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.err = b.exceeded()
		return n - 1, b.err
	}
	return n, err
}
