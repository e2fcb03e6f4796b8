// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/peeringtest"
)

// roundTripper is a function that implements http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// interruptedAt returns the same clusters with other clients. At the write with the given number, counted from 1, the
// clients call cancel, and then send no more requests. If isServed is true, the API server still executes this write.
func (s *stubs) interruptedAt(number int, isServed bool, cancel func()) (interrupted *stubs, isReached func() bool) {
	count := 0
	wrap := func(side *peeringtest.Side) *peeringtest.Side {
		config := rest.CopyConfig(side.Config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if request.Method != http.MethodGet && !strings.HasSuffix(request.URL.Path, "reviews") {
					count++
				}
				if count < number {
					return next.RoundTrip(request)
				}
				if isServed && count == number {
					if response, err := next.RoundTrip(request.WithContext(context.WithoutCancel(request.Context()))); err == nil {
						_ = response.Body.Close()
					}
				}
				cancel()
				return nil, context.Canceled
			})
		})
		return side.As(s.T, config)
	}
	return &stubs{T: s.T, rome: wrap(s.rome), milan: wrap(s.milan)}, func() bool { return count >= number }
}

// TestInterruptedCommands interrupts each command at each of its writes, both before and after the API server executes
// the write. The error must report this, and another run must have the same result as a run without an interruption.
func TestInterruptedCommands(t *testing.T) {
	t.Parallel()
	join := func(_ context.Context, s *stubs) error { return s.peer(s.options()) }
	invite := func(ctx context.Context, s *stubs) error {
		o := s.options()
		var err error
		o.Consumer, err = cluster.Absent("rome")
		require.NoError(s, err)
		kubeconfig, _, err := o.Invite(ctx, time.Hour)
		assert.Equal(s, err == nil, len(kubeconfig) > 0, "an invitation is printed only if it is complete")
		return err
	}
	for name, test := range map[string]struct {
		before, run func(ctx context.Context, s *stubs) error
		writes      int    // minimum number of writes
		complete    string // error that is accepted from the second run if the first run was interrupted after its last write
	}{
		"generate peering-user": {func(context.Context, *stubs) error { return nil }, invite, 5, ""},
		"delete peering-user": {invite, func(ctx context.Context, s *stubs) error {
			o := s.options()
			var err error
			o.Consumer, err = cluster.Absent("rome")
			require.NoError(s, err)
			_, err = o.Withdraw(ctx)
			return err
		}, 5, "there is no peering with rome"},
		"create virtualnode": {join, func(ctx context.Context, s *stubs) error {
			o := s.options()
			o.VirtualNode, o.ProviderID = "milan-gpu", "milan"
			_, err := o.CreateNode(ctx)
			return err
		}, 5, ""},
		"create virtualnode, provider not accessible": {join, func(ctx context.Context, s *stubs) error {
			o := s.options()
			o.VirtualNode, o.ProviderID = "milan-gpu", "milan"
			var err error
			o.Provider, err = cluster.Absent("milan")
			require.NoError(s, err)
			_, err = o.CreateNode(ctx)
			return err
		}, 5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prepare := func() *stubs {
				s := newStubs(t)
				require.NoError(t, test.before(t.Context(), s))
				return s
			}
			complete := prepare()
			require.NoError(t, test.run(t.Context(), complete))
			want := withoutServers(complete)
			for number := 1; ; number++ {
				for _, isServed := range []bool{false, true} {
					s, what := prepare(), fmt.Sprintf("write %d, served: %t", number, isServed)
					ctx, cancel := context.WithCancel(t.Context())
					interrupted, isReached := s.interruptedAt(number, isServed, cancel)
					interrupted.milan.Config.Host = s.milan.Config.Host
					err := test.run(ctx, interrupted)
					cancel()
					if !isReached() {
						require.NoError(t, err, what)
						assert.Greater(t, number, test.writes)
						return
					}
					require.ErrorContains(t, err, "interrupted; run the command again to continue", what)
					again := test.run(t.Context(), s)
					if test.complete == "" || again == nil {
						require.NoError(t, again, what)
					} else {
						require.ErrorContains(t, again, test.complete, what)
					}
					assert.Equal(t, want, withoutServers(s), what)
				}
			}
		})
	}
}
