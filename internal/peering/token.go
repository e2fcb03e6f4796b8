// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// tokenLife is the requested lifetime. An API server may issue a token with a shorter one. The consumer's controller
// manager renews a token when a third of its lifetime is over, so a consumer may be unreachable for two months.
const tokenLife = 90 * 24 * time.Hour

// token requests a token of the consumer's ServiceAccount on the provider. The ServiceAccount may request further
// tokens itself.
func (o *Options) token(ctx context.Context) (*clientcmdapi.AuthInfo, time.Time, error) {
	return o.tokenFor(ctx, tokenLife)
}

func (o *Options) tokenFor(ctx context.Context, life time.Duration) (*clientcmdapi.AuthInfo, time.Time, error) {
	account := o.account()
	answer, err := o.Provider.Clientset.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(life.Seconds()))}}, metav1.CreateOptions{})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("requesting a token of ServiceAccount %s, %w", client.ObjectKeyFromObject(account), err)
	}
	return &clientcmdapi.AuthInfo{Token: answer.Status.Token}, answer.Status.ExpirationTimestamp.Time, nil
}

// accepts reports whether the provider accepts a token as the consumer's. Tokens become invalid with their
// ServiceAccount, which may have been recreated. Without permission to review the token, a new one is requested.
func (o *Options) accepts(ctx context.Context, token string) (bool, error) {
	if token == "" || o.Provider.invitation != nil {
		return false, nil
	}
	review, err := o.Provider.Clientset.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cluster %s: reviewing the token of the consumer, %w", o.Provider.Name, err)
	}
	account := o.account()
	return review.Status.Authenticated && review.Status.User.Username == serviceaccount.MakeUsername(account.Namespace, account.Name), nil
}

// account returns the ServiceAccount of the consumer on the provider.
func (o *Options) account() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: meta(wire.TenantNamespace(o.Consumer.ID()), wire.ConsumerServiceAccount, map[string]string{wire.RemoteClusterIDLabel: o.Consumer.ID()}),
		AutomountServiceAccountToken: ptr.To(false)}
}
