// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package accessreview checks permissions with the access review APIs of an API server.
package accessreview

import (
	"context"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reviewer reports whether a permission is granted. It may be called concurrently.
type Reviewer func(ctx context.Context, attributes authorizationv1.ResourceAttributes) (allowed bool, err error)

// Self returns a Reviewer for the client's own permissions.
func Self(reviews authorizationclient.SelfSubjectAccessReviewsGetter) Reviewer {
	return func(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
		review, err := reviews.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	}
}

// ServiceAccount returns a Reviewer for the permissions of a ServiceAccount, including the permissions of its groups.
func ServiceAccount(c client.Writer, namespace, name string) Reviewer {
	user := serviceaccount.MakeUsername(namespace, name)
	groups := append(serviceaccount.MakeGroupNames(namespace), "system:authenticated")
	return func(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &attributes}}
		err := c.Create(ctx, review)
		return err == nil && review.Status.Allowed, err
	}
}

// concurrency is the number of permissions that Refused reviews at the same time. With more concurrent reviews, API
// Priority and Fairness might throttle the client.
const concurrency = 8

// Refused returns the permissions that are not granted, in the order of the argument all. It reviews several
// permissions concurrently, and returns the first error.
func Refused(ctx context.Context, all []authorizationv1.ResourceAttributes, review Reviewer) (refused []authorizationv1.ResourceAttributes, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	isRefused := make([]bool, len(all))
	for i, attributes := range all {
		group.Go(func() error {
			allowed, err := review(ctx, attributes)
			isRefused[i] = !allowed
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, attributes := range all {
		if isRefused[i] {
			refused = append(refused, attributes)
		}
	}
	return refused, nil
}
