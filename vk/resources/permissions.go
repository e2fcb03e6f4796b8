// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/rbac"
)

const (
	// reviewsAtOnce bounds the questions under way: there may be hundreds of twin namespaces.
	reviewsAtOnce = 8
	// namedNamespaces is how many a message names.
	namedNamespaces = 3
)

// lack is what is not permitted.
type lack struct {
	fault *fault
	some  bool // enough is permitted to begin: only some namespaces, or their twins, are closed
}

// permitted asks both clusters whether they let us do what the plan needs; nil when they do.
func (f *Follower) permitted(ctx context.Context, p plan) *lack {
	twins := f.options.Engine.Namespaces()
	here := rbac.ReflectedLocal(p.source.Group, p.source.Resource, p.patched()...)
	shut, err := f.local.denied(ctx, here, slices.Sorted(maps.Keys(twins)))
	if err != nil {
		return failed(err)
	}
	there := rbac.ReflectedRemote(p.target.Group, p.target.Resource)
	closed, err := f.remote.denied(ctx, there, slices.Sorted(maps.Values(twins)))
	if err != nil {
		return failed(err)
	}
	var sentences []string
	if len(shut) > 0 {
		sentences = append(sentences, f.local.sentence(here, shut))
	}
	if len(closed) > 0 {
		sentences = append(sentences, f.remote.sentence(there, closed))
	}
	if len(sentences) == 0 {
		return nil
	}
	return &lack{some: passable(twins, shut, closed),
		fault: &fault{reason: pluginsv1alpha1.MissingPermissionReason, message: strings.Join(sentences, "\n")}}
}

// passable tells whether nothing is denied for at least one of the namespaces, neither in it nor in its twin.
func passable(twins map[string]string, shut, closed denials) bool {
	here, there := shut.namespaces(), closed.namespaces()
	for local, twin := range twins {
		if !slices.Contains(here, local) && !slices.Contains(there, twin) {
			return true
		}
	}
	return false
}

func failed(err error) *lack {
	var known *fault
	if !errors.As(err, &known) {
		known = &fault{reason: pluginsv1alpha1.UnreachableReason, message: err.Error()}
	}
	return &lack{fault: known}
}

// only leaves the rules of a role that are about an API group.
func only(role rbac.Role, group string) rbac.Role {
	var rules []rbac.Rule
	for _, rule := range role.Rules {
		if slices.Contains(rule.APIGroups, group) {
			rules = append(rules, rule)
		}
	}
	role.Rules = rules
	return role
}

// denial is one verb on one resource in one namespace, "" = all.
type denial struct{ namespace, resource, verb string }

type denials []denial

func (d denials) namespaces() []string {
	seen := map[string]bool{}
	for _, one := range d {
		seen[one.namespace] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// denied returns what of a role we may not do in the namespaces.
func (s *side) denied(ctx context.Context, role rbac.Role, namespaces []string) (denials, error) {
	var found denials
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for _, namespace := range namespaces {
		for _, rule := range role.Rules {
			for _, one := range each(rule) {
				one.namespace = namespace
				group.Go(func() error {
					allowed, err := s.may(ctx, namespace, one.verb, rule.APIGroups[0], one.resource)
					if err != nil || allowed {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					found = append(found, one)
					return nil
				})
			}
		}
	}
	return found, group.Wait()
}

// each verb of a rule on each of its resources.
func each(rule rbac.Rule) (all denials) {
	for _, resource := range rule.Resources {
		for _, verb := range rule.Verbs {
			all = append(all, denial{resource: resource, verb: verb})
		}
	}
	return all
}

// may asks the API server.
func (s *side) may(ctx context.Context, namespace, verb, group, resource string) (bool, error) {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	resource, subresource, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource},
	}}
	answer, err := s.reviews.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err): // nobody may be told what they may: then the engine will find out
		return true, nil
	case err != nil:
		return false, s.unanswered(err)
	}
	return answer.Status.Allowed, nil
}

// sentence says what is denied, and what to add where.
func (s *side) sentence(role rbac.Role, denied denials) string {
	var doing []string
	for _, rule := range role.Rules {
		var verbs, resources []string
		for _, one := range each(rule) {
			if !slices.ContainsFunc(denied, func(d denial) bool { return d.verb == one.verb && d.resource == one.resource }) {
				continue
			}
			if !slices.Contains(verbs, one.verb) {
				verbs = append(verbs, one.verb)
			}
			if !slices.Contains(resources, one.resource) {
				resources = append(resources, one.resource)
			}
		}
		if len(verbs) > 0 {
			doing = append(doing, strings.Join(verbs, ", ")+" "+strings.Join(resources, ", "))
		}
	}
	return s.forbidden(strings.Join(doing, " and ")+where(denied.namespaces()), role).Error()
}

// where names namespaces, but not all of them.
func where(namespaces []string) string {
	switch n := len(namespaces); {
	case n == 0 || namespaces[0] == metav1.NamespaceAll:
		return ""
	case n == 1:
		return " in namespace " + namespaces[0]
	case n <= namedNamespaces:
		return " in namespaces " + strings.Join(namespaces, ", ")
	default:
		return fmt.Sprintf(" in namespaces %s and %d more", strings.Join(namespaces[:namedNamespaces], ", "), n-namedNamespaces)
	}
}

// forbidden says what a cluster does not let us do, with the rules to add.
func (s *side) forbidden(doing string, role rbac.Role) error {
	rules := make([]rbacv1.PolicyRule, 0, len(role.Rules))
	for _, rule := range role.Rules {
		rules = append(rules, rule.PolicyRule)
	}
	text, err := yaml.Marshal(rules)
	if err != nil {
		text = []byte(fmt.Sprint(rules))
	}
	return &fault{reason: pluginsv1alpha1.MissingPermissionReason,
		message: fmt.Sprintf("%s does not let this virtual kubelet %s. Add to ClusterRole %s there:\n%s", s, doing, role.Named(s.prefix), text)}
}
