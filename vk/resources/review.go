// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
)

// answer is what a cluster says we may do in a namespace.
type answer struct {
	rules    []rbacv1.PolicyRule
	complete bool // there is nothing else that we may
}

// reviews keeps answers for a moment: when a namespace is offloaded, every ReflectedResource asks about it at once. Safe for
// concurrent use.
type reviews struct {
	clock clock.PassiveClock
	last  time.Duration // of an answer

	mu      sync.Mutex
	answers map[string]*lasting // by namespace
	same    []rbacv1.PolicyRule // of the answer before: most namespaces have the same rules, which are kept once
}

// lasting is a cached answer with its age. The holder of the turn reads and writes it.
type lasting struct {
	answer
	turn chan struct{}
	at   time.Time
}

// of returns the place of a namespace's answer, with the turn; done gives that back.
func (r *reviews) of(ctx context.Context, namespace string) (place *lasting, done func(), err error) {
	r.mu.Lock()
	place = r.answers[namespace]
	if place == nil {
		place = &lasting{turn: make(chan struct{}, 1)}
		r.answers[namespace] = place
	}
	r.mu.Unlock()
	select {
	case place.turn <- struct{}{}:
		return place, func() { <-place.turn }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// share returns the rules of the answer before if they are the same, in whichever order.
func (r *reviews) share(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int { return strings.Compare(a.String(), b.String()) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if !equality.Semantic.DeepEqual(rules, r.same) {
		r.same = rules
	}
	return r.same
}

// keep drops the answers about all other namespaces.
func (r *reviews) keep(needed sets.Set[string]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.answers, func(namespace string, _ *lasting) bool { return !needed.Has(namespace) })
}

// rules returns what we may do in a namespace, by one question for all ReflectedResources that ask in the same moment.
func (s *side) rules(ctx context.Context, namespace string) (answer, error) {
	place, done, err := s.reviews.of(ctx, namespace)
	if err != nil {
		return answer{}, s.unanswered(err)
	}
	defer done()
	if !place.at.IsZero() && s.reviews.clock.Since(place.at) < s.reviews.last {
		return place.answer, nil
	}
	asked := s.reviews.clock.Now()
	ctx, cancel := s.limited(ctx)
	defer cancel()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	result, err := s.authorization.SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return answer{}, nil // then each permission is asked for
	case err != nil:
		return answer{}, s.unanswered(err)
	}
	rules := make([]rbacv1.PolicyRule, len(result.Status.ResourceRules))
	for i, rule := range result.Status.ResourceRules {
		rules[i] = rbacv1.PolicyRule{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames}
	}
	place.answer, place.at = answer{rules: s.reviews.share(rules), complete: !result.Status.Incomplete}, asked
	return place.answer, nil
}

// may asks for one permission.
func (s *side) may(ctx context.Context, namespace, verb, group, resource string) (bool, error) {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	resource, subresource, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource},
	}}
	result, err := s.authorization.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err): // access reviews are not allowed: the engine will find out
		return true, nil
	case err != nil:
		return false, s.unanswered(err)
	}
	return result.Status.Allowed, nil
}
