// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/virtualnode"
	"github.com/refract-project/refract/internal/retryafter"
)

// limit is a transport that, while it is on, responds to evictions as API priority and fairness does.
type limit struct {
	next http.RoundTripper
	on   *atomic.Bool
}

func (l limit) RoundTrip(request *http.Request) (*http.Response, error) {
	if !l.on.Load() || !strings.HasSuffix(request.URL.Path, "/eviction") {
		return l.next.RoundTrip(request)
	}
	return &http.Response{
		StatusCode: http.StatusTooManyRequests, Request: request, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "Retry-After": {"1"}},
		Body:   io.NopCloser(strings.NewReader("Too many requests, please try again later.\n")),
	}, nil
}

// TestADrainWhileRequestsAreLimited checks an API server that limits requests. Its response to an eviction has the same
// code as the response for a PodDisruptionBudget. The drain distinguishes the two responses, and continues when the
// limit has ended.
func TestADrainWhileRequestsAreLimited(t *testing.T) {
	shop := consumer.Namespace(t)
	vn := virtualNode(t, "trento", "trento")
	web := pod(t, shop, "web", "trento")
	consumer.Patch(t, vn, `{"metadata":{"finalizers":["`+wire.VirtualNodeFinalizer+`"],"annotations":{"`+wire.DrainAnnotation+`":"true"}}}`)
	on := &atomic.Bool{}
	on.Store(true)
	access, err := consumer.ConfigFor(controllertest.ManagerUser)
	require.NoError(t, err)
	access.Wrap(func(next http.RoundTripper) http.RoundTripper { return limit{next, on} })
	retryafter.Wrap(access)
	limited, err := client.New(access, client.Options{Scheme: consumer.Client.Scheme()})
	require.NoError(t, err)
	options := virtualnode.Options{Workers: 1, Clock: clock.RealClock{}}
	c := virtualnode.NewController(limited, limited, events.NewFakeRecorder(10), options)
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(vn)}

	_, err = c.Reconcile(t.Context(), request)
	require.ErrorContains(t, err, "evicting pod "+shop+"/web, ")
	assert.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	awaitCondition(t, vn, offloading.NodeConditionType, offloading.DrainingConditionStatus, "Draining",
		"1 pod left on the node, 0 terminating; evicting pod "+shop+"/web, ")
	for _, condition := range vn.Status.Conditions {
		assert.NotContains(t, condition.Message, "PodDisruptionBudget")
	}
	on.Store(false)
	_, err = c.Reconcile(t.Context(), request)
	assert.False(t, apierrors.IsTooManyRequests(err), "%v", err)
	awaitEvicted(t, web)
	end(t, web)
	consumer.Patch(t, vn, `{"metadata":{"finalizers":null}}`)
}
