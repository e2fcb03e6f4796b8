// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/internal/apifailure"
)

// The reviews do not use the webhook packages of k8s.io/apiserver, because these packages import gRPC, OpenTelemetry
// and CEL. For two calls, they would make the program 40 MB larger, and half of this would be resident in memory.

// The caching times of the API server's responses are the defaults of a kubelet. With shorter times, more reviews are
// sent. With longer times, revoked permissions stay valid for longer.
const (
	tokenCachePeriod   = 2 * time.Minute
	allowedCachePeriod = 5 * time.Minute
	deniedCachePeriod  = 30 * time.Second
	// maxCachedReviews is the maximum number of cached responses about permissions. The least recently used responses
	// are evicted.
	maxCachedReviews = 4096
	// reviewTimeout limits one attempt to send a review.
	reviewTimeout = 10 * time.Second
)

// reviewBackoff is the backoff between attempts while the API server does not respond. A kubelet has the same
// backoff.
var reviewBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}

// reviewer sends TokenReviews and SubjectAccessReviews. It is safe for concurrent use.
type reviewer struct {
	client  kubernetes.Interface
	answers *cache.LRUExpireCache
}

func newReviewer(client kubernetes.Interface) *reviewer {
	return &reviewer{client: client, answers: cache.NewLRUExpireCache(maxCachedReviews)}
}

// AuthenticateToken implements authenticator.Token.
func (r *reviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	asked := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	var answer *authenticationv1.TokenReview
	err := retryCall(ctx, func(ctx context.Context) (err error) {
		answer, err = r.client.AuthenticationV1().TokenReviews().Create(ctx, asked, metav1.CreateOptions{})
		return err
	})
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("reviewing a token, %w", err)
	case answer.Status.Error != "":
		return nil, false, errors.New(answer.Status.Error)
	case !answer.Status.Authenticated:
		return nil, false, nil
	}
	extra := map[string][]string{}
	for key, values := range answer.Status.User.Extra {
		extra[key] = values
	}
	who := answer.Status.User
	return &authenticator.Response{User: &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra}}, true, nil
}

// isAllowed reports whether the API server allows the request.
func (r *reviewer) isAllowed(ctx context.Context, asked authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	key, err := json.Marshal(asked)
	if err != nil {
		return false, fmt.Errorf("encoding a SubjectAccessReview, %w", err)
	}
	if known, ok := r.answers.Get(string(key)); ok {
		return known.(bool), nil
	}
	var answer *authorizationv1.SubjectAccessReview
	err = retryCall(ctx, func(ctx context.Context) (err error) {
		answer, err = r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: asked}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return false, err
	}
	allowed, ttl := answer.Status.Allowed && !answer.Status.Denied, deniedCachePeriod
	if allowed {
		ttl = allowedCachePeriod
	}
	r.answers.Add(string(key), allowed, ttl)
	return allowed, nil
}

// retryCall repeats a call a few times, as long as its error may be temporary.
func retryCall(ctx context.Context, call func(context.Context) error) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, reviewBackoff, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		if last = call(ctx); last != nil && !mayHeal(last) {
			return false, last
		}
		return last == nil, nil
	})
	if wait.Interrupted(err) && last != nil {
		return last
	}
	return err
}

// mayHeal reports whether an error may be temporary, because the API server is starting, busy or unreachable.
func mayHeal(err error) bool {
	return apifailure.IsUndecided(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsTimeout(err)
}
