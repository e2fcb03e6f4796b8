// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Access authenticates and authorizes callers. Its methods are safe for concurrent use.
type Access struct {
	nodeName      string
	authenticator authenticator.Request
	reviews       *reviewer
}

// NewAccess returns an Access that delegates to the API server of client, with TokenReviews and SubjectAccessReviews.
// Client certificates are verified against clientCA. If clientCA is nil, only tokens are accepted.
func NewAccess(nodeName string, client kubernetes.Interface, clientCA dynamiccertificates.CAContentProvider) *Access {
	reviews := newReviewer(client)
	tokens := cache.New(reviews, false, tokenCachePeriod, tokenCachePeriod)
	known := []authenticator.Request{bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens)}
	if clientCA != nil {
		known = slices.Insert(known, 0, authenticator.Request(x509.NewDynamic(clientCA.VerifyOptions, x509.CommonNameUserConversion)))
	}
	return &Access{nodeName: nodeName, authenticator: group.NewAuthenticatedGroupAdder(union.New(known...)), reviews: reviews}
}

// guardHandler returns a handler that passes only authorized requests to next.
func (a *Access) guardHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, ok, err := a.authenticator.AuthenticateRequest(r)
		if err != nil || !ok {
			log.FromContext(r.Context()).V(1).Info("Refused an unauthenticated caller of the kubelet API",
				"path", r.URL.Path, "from", r.RemoteAddr, "err", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		asked := requiredAccess(a.nodeName, caller.User, r)
		allowed, err := a.anyAllowed(r.Context(), asked)
		switch {
		case err != nil:
			log.FromContext(r.Context()).Error(err, "Cannot authorize a caller of the kubelet API", "user", caller.User.GetName())
			http.Error(w, fmt.Sprintf("asking the API server whether %s, %v", describeReviews(asked), err), http.StatusInternalServerError)
		case !allowed:
			http.Error(w, "Forbidden: "+describeReviews(asked)+" is not allowed", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// anyAllowed reports whether one of the reviews allows the request.
func (a *Access) anyAllowed(ctx context.Context, asked []authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	for _, review := range asked {
		if allowed, err := a.reviews.isAllowed(ctx, review); allowed || err != nil {
			return allowed, err
		}
	}
	return false, nil
}

// describeReviews returns the required permissions in the terms of an RBAC rule.
func describeReviews(asked []authorizationv1.SubjectAccessReviewSpec) string {
	var subresources []string
	for _, review := range asked {
		subresources = append(subresources, "nodes/"+review.ResourceAttributes.Subresource)
	}
	first := asked[0]
	return fmt.Sprintf("user %q, verb %q, resource %v, name %q", first.User, first.ResourceAttributes.Verb, subresources, first.ResourceAttributes.Name)
}
