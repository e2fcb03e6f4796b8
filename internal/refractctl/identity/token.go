// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/refractctl/tenant"
)

// TokenLifetime is the requested lifetime of tokens. An API server may issue a token with a shorter lifetime. The
// consumer's controller manager renews a token after a third of its lifetime, so a consumer may be disconnected for
// two months.
const TokenLifetime = 90 * 24 * time.Hour

// TokenIssuer requests tokens of the consumer's ServiceAccount on the provider. With such a token, the consumer can
// request further tokens itself.
type TokenIssuer struct {
	Tenant   tenant.Tenant
	Lifetime time.Duration
}

// Issue returns a new token.
func (i TokenIssuer) Issue(ctx context.Context) (*clientcmdapi.AuthInfo, time.Time, error) {
	account := i.Tenant.Account()
	answer, err := i.Tenant.Provider.Clientset.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(i.Lifetime.Seconds()))}}, metav1.CreateOptions{})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("requesting a token of ServiceAccount %s, %w", client.ObjectKeyFromObject(account), err)
	}
	return &clientcmdapi.AuthInfo{Token: answer.Status.Token}, answer.Status.ExpirationTimestamp.Time, nil
}

// IsReusable reports whether the provider accepts a token as a token of the consumer. Tokens become invalid if the
// ServiceAccount is recreated. Without permission to review tokens, such as with an invitation, IsReusable returns
// false, so that a new token is requested.
func (i TokenIssuer) IsReusable(ctx context.Context, config *rest.Config) (bool, error) {
	provider := i.Tenant.Provider
	if config.BearerToken == "" || provider.IsInvited() {
		return false, nil
	}
	review, err := provider.Clientset.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: config.BearerToken}}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cluster %s: reviewing the token of the consumer, %w", provider.Name, err)
	}
	account := i.Tenant.Account()
	return review.Status.Authenticated && review.Status.User.Username == serviceaccount.MakeUsername(account.Namespace, account.Name), nil
}
