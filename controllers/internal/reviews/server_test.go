// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reviews_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/controllers/internal/reviews"
)

// TestAReviewInProgressDoesNotBlockTheEnd checks that a review without a response does not keep the process from
// ending. The connection must be closed after the time that API servers wait for a response.
func TestAReviewInProgressDoesNotBlockTheEnd(t *testing.T) {
	t.Parallel()
	certificates := httptest.NewUnstartedServer(nil)
	certificates.EnableHTTP2 = true
	certificates.StartTLS()
	defer certificates.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())

	server := reviews.NewServer(address, certificates.TLS)
	server.SetShutdownTimeout(100 * time.Millisecond)
	begun, abandoned, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	server.Register("/", http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		close(begun)
		<-request.Context().Done()
		close(abandoned)
		<-release
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	require.Eventually(t, func() bool { return server.StartedChecker()(nil) == nil }, time.Minute, time.Millisecond)
	answered := make(chan error, 1)
	go func() {
		response, err := certificates.Client().Post("https://"+address, "application/json", http.NoBody)
		if err == nil {
			err = response.Body.Close()
		}
		answered <- err
	}()
	<-begun
	stop()
	<-abandoned
	require.NoError(t, <-ended, "the server ends, although the review is still in progress")
	require.Error(t, <-answered)
	close(release)
}
