// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// How long answers of the API server are remembered: the defaults of a kubelet.
// Shorter means more reviews, longer that a withdrawn right lives on.
const (
	tokenCacheTTL   = 2 * time.Minute
	allowedCacheTTL = 5 * time.Minute
	deniedCacheTTL  = 30 * time.Second
	reviewTimeout   = 10 * time.Second
)

// Access decides who may call, and what. Its methods are safe for concurrent use.
type Access struct {
	nodeName      string
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
}

// NewAccess delegates to the API server behind client: tokens by TokenReview,
// permissions by SubjectAccessReview. Client certificates are verified here
// against clientCA; nil means that only tokens are accepted.
func NewAccess(nodeName string, client kubernetes.Interface, clientCA dynamiccertificates.CAContentProvider) (*Access, error) {
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:            client.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                options.DefaultAuthWebhookRetryBackoff(),
		CacheTTL:                           tokenCacheTTL,
		ClientCertificateCAContentProvider: clientCA,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("setting up authentication of kubelet API callers, %w", err)
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             allowedCacheTTL,
		DenyCacheTTL:              deniedCacheTTL,
		WebhookRetryBackoff:       options.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("setting up authorization of kubelet API callers, %w", err)
	}
	return &Access{nodeName: nodeName, authenticator: authn, authorizer: authz}, nil
}

// guard lets only allowed requests through to next.
func (a *Access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, ok, err := a.authenticator.AuthenticateRequest(r)
		if err != nil || !ok {
			log.FromContext(r.Context()).V(1).Info("Refused an unauthenticated caller of the kubelet API",
				"path", r.URL.Path, "from", r.RemoteAddr, "reason", fmt.Sprint(err))
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		asked := attributes(a.nodeName, caller.User, r)
		allowed, err := a.anyAllowed(r.Context(), asked)
		switch {
		case err != nil:
			log.FromContext(r.Context()).Error(err, "Asking the API server for permission", "user", caller.User.GetName())
			http.Error(w, fmt.Sprintf("asking the API server whether %s, %v", describe(asked), err), http.StatusInternalServerError)
		case !allowed:
			http.Error(w, "Forbidden: "+describe(asked)+" is not allowed", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// anyAllowed reports whether one of the attributes is allowed.
func (a *Access) anyAllowed(ctx context.Context, asked []authorizer.Attributes) (bool, error) {
	for _, attributes := range asked {
		decision, _, err := a.authorizer.Authorize(ctx, attributes)
		if decision == authorizer.DecisionAllow {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// describe names what was asked for, in the terms that an RBAC rule needs.
func describe(asked []authorizer.Attributes) string {
	var subresources []string
	for _, attributes := range asked {
		subresources = append(subresources, "nodes/"+attributes.GetSubresource())
	}
	return fmt.Sprintf("user %q, verb %q, resource %v, name %q",
		asked[0].GetUser().GetName(), asked[0].GetVerb(), subresources, asked[0].GetName())
}
