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

	"github.com/refract-project/refract/internal/accessreview"
)

// answer is the result of a SelfSubjectRulesReview for a namespace.
type answer struct {
	rules    []rbacv1.PolicyRule
	complete bool // the rules contain all permissions of the virtual kubelet
}

// reviews caches answers for a short time, because all ReflectedResources need them when a namespace is offloaded. It
// is safe for concurrent use.
type reviews struct {
	clock clock.PassiveClock
	last  time.Duration // lifetime of an answer in the cache

	mu      sync.Mutex
	answers map[string]*lasting // keyed by namespace
	// The rules of the previous answer. Most namespaces have equal rules, which then only need to be stored once.
	same []rbacv1.PolicyRule
}

// lasting is a cached answer with its time. Only the goroutine that has acquired turn may access the fields.
type lasting struct {
	answer
	turn chan struct{}
	at   time.Time
}

// acquireEntry returns the cache entry of a namespace and acquires its turn. The caller must call done, which
// releases the turn.
func (r *reviews) acquireEntry(ctx context.Context, namespace string) (place *lasting, done func(), err error) {
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

// shareRules returns the rules of the previous answer if they are equal to the given rules in any order. In this way,
// equal rules are only stored once.
func (r *reviews) shareRules(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int { return strings.Compare(a.String(), b.String()) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if !equality.Semantic.DeepEqual(rules, r.same) {
		r.same = rules
	}
	return r.same
}

// dropOthers removes the answers for all namespaces that are not needed.
func (r *reviews) dropOthers(needed sets.Set[string]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.answers, func(namespace string, _ *lasting) bool { return !needed.Has(namespace) })
}

// namespaceRules returns the permissions of the virtual kubelet in a namespace. Concurrent calls for a namespace
// share one review.
func (s *side) namespaceRules(ctx context.Context, namespace string) (answer, error) {
	place, done, err := s.reviews.acquireEntry(ctx, namespace)
	if err != nil {
		return answer{}, s.responseFault(err)
	}
	defer done()
	if !place.at.IsZero() && s.reviews.clock.Since(place.at) < s.reviews.last {
		return place.answer, nil
	}
	asked := s.reviews.clock.Now()
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	result, err := s.authorization.SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return answer{}, nil // for an empty answer, the caller reviews each permission separately
	case err != nil:
		return answer{}, s.responseFault(err)
	}
	rules := make([]rbacv1.PolicyRule, len(result.Status.ResourceRules))
	for i, rule := range result.Status.ResourceRules {
		rules[i] = rbacv1.PolicyRule{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames}
	}
	place.answer, place.at = answer{rules: s.reviews.shareRules(rules), complete: !result.Status.Incomplete}, asked
	return place.answer, nil
}

// isAllowed reports whether one permission is granted.
func (s *side) isAllowed(ctx context.Context, namespace, verb, group, resource string) (bool, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	resource, subresource, _ := strings.Cut(resource, "/")
	allowed, err := accessreview.Self(s.authorization)(ctx, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource})
	switch {
	// Access reviews are forbidden. The permission counts as granted. If it is missing, the engine will fail when it
	// uses the permission.
	case apierrors.IsForbidden(err):
		return true, nil
	case err != nil:
		return false, s.responseFault(err)
	}
	return allowed, nil
}
