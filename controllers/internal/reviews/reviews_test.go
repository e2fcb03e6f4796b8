// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reviews_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/refract-project/refract/controllers/internal/reviews"
)

// reader is a handler that reads the body of a request and then blocks until it is released.
type reader struct {
	release         chan struct{}
	held, most, all atomic.Int64
}

func (r *reader) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	held := r.held.Add(int64(len(body)))
	for most := r.most.Load(); held > most && !r.most.CompareAndSwap(most, held); most = r.most.Load() {
	}
	r.all.Add(1)
	select {
	case <-r.release:
	case <-request.Context().Done():
	}
	r.held.Add(-int64(len(body)))
}

func TestLargeReviewsWaitForEachOther(t *testing.T) {
	t.Parallel()
	const size, count = 3 << 20, 40
	handler := &reader{release: make(chan struct{})}
	// The client uses a single connection, like an API server.
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2, server.Config = true, reviews.NewHTTPServer(reviews.Limit(handler))
	server.StartTLS()
	defer server.Close()
	release := sync.OnceFunc(func() { close(handler.release) })
	defer release()
	send := func(size int) error {
		response, err := server.Client().Post(server.URL, "application/json", bytes.NewReader(make([]byte, size)))
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	var large errgroup.Group
	for range count {
		large.Go(func() error { return send(size) })
	}
	require.Eventually(t, func() bool { return handler.all.Load() == 2 }, time.Minute, time.Millisecond, "two of them fit")

	// A small review must not wait for large ones.
	var small errgroup.Group
	small.Go(func() error { return send(10 << 10) })
	require.Eventually(t, func() bool { return handler.all.Load() == 3 }, time.Minute, time.Millisecond, "the small one waits")
	release()
	require.NoError(t, large.Wait())
	require.NoError(t, small.Wait())
	assert.EqualValues(t, count+1, handler.all.Load())
	assert.LessOrEqual(t, handler.most.Load(), int64(8<<20+10<<10))
}

func TestASenderThatStallsGivesItsRoomBack(t *testing.T) {
	t.Parallel()
	handler := &reader{release: make(chan struct{})}
	close(handler.release)
	server := httptest.NewServer(reviews.Limit(handler))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stalled, hold := io.Pipe()
	defer hold.Close() //nolint:errcheck // a pipe
	go func() {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, stalled)
		if err == nil {
			response, err := http.DefaultClient.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
		}
	}()
	_, err := hold.Write([]byte("{")) // when Write returns, the byte has been read, so the review counts towards the limit
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, bytes.NewReader(make([]byte, 6<<20)))
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.EqualValues(t, 1, handler.all.Load())
}
