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

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/rbac"
)

const (
	// reviewsAtOnce bounds the questions under way: there may be hundreds of remote namespaces.
	reviewsAtOnce = 8
	// namedNamespaces is how many a message names.
	namedNamespaces = 3
)

// lack is what is not permitted.
type lack struct {
	fault *fault
	some  bool // enough is permitted to begin: only some namespaces, or their remote namespaces, are closed
}

// permitted asks both clusters whether they let us do what the plan needs; nil when they do.
func (f *Follower) permitted(ctx context.Context, p plan) *lack {
	remoteNamespaces := f.options.Engine.Namespaces()
	here := rbac.ReflectedLocal(p.source.Group, p.source.Resource, p.patched()...)
	shut, err := f.local.denied(ctx, here, slices.Sorted(maps.Keys(remoteNamespaces)))
	if err != nil {
		return failed(err)
	}
	there := rbac.ReflectedRemote(p.target.Group, p.target.Resource)
	closed, err := f.remote.denied(ctx, there, slices.Sorted(maps.Values(remoteNamespaces)))
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
	return &lack{some: passable(remoteNamespaces, shut, closed),
		fault: &fault{reason: pluginsv1alpha1.MissingPermissionReason, message: strings.Join(sentences, "\n")}}
}

// passable reports whether nothing is denied for at least one of the namespaces, neither in it nor in its remote namespace.
func passable(remoteNamespaces map[string]string, shut, closed denials) bool {
	here, there := shut.namespaces(), closed.namespaces()
	for local, remoteNamespace := range remoteNamespaces {
		if !slices.Contains(here, local) && !slices.Contains(there, remoteNamespace) {
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
	found := make([]denials, len(namespaces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i, namespace := range namespaces {
		group.Go(func() (err error) {
			found[i], err = s.deniedIn(ctx, namespace, role.PolicyRules(strings.NewReplacer()))
			return err
		})
	}
	err := group.Wait()
	return slices.Concat(found...), err
}

// deniedIn asks for one permission after the other only about what the rules of the namespace do not answer.
func (s *side) deniedIn(ctx context.Context, namespace string, required []rbacv1.PolicyRule) (found denials, err error) {
	var known answer
	if namespace != metav1.NamespaceAll { // there is no such review of all of them
		if known, err = s.rules(ctx, namespace); err != nil {
			return nil, err
		}
	}
	_, lacking := validation.Covers(known.rules, required)
	for _, one := range lacking { // each is one verb on one resource
		allowed := false
		if !known.complete {
			if allowed, err = s.may(ctx, namespace, one.Verbs[0], one.APIGroups[0], one.Resources[0]); err != nil {
				return nil, err
			}
		}
		if !allowed {
			found = append(found, denial{namespace, one.Resources[0], one.Verbs[0]})
		}
	}
	return found, nil
}

// sentence describes what is denied, and the rules to add.
func (s *side) sentence(role rbac.Role, denied denials) string {
	var doing []string
	for _, rule := range role.Rules {
		var verbs, resources []string
		for _, one := range validation.BreakdownRule(rule.PolicyRule) {
			resource, verb := one.Resources[0], one.Verbs[0]
			if !slices.ContainsFunc(denied, func(d denial) bool { return d.verb == verb && d.resource == resource }) {
				continue
			}
			if !slices.Contains(verbs, verb) {
				verbs = append(verbs, verb)
			}
			if !slices.Contains(resources, resource) {
				resources = append(resources, resource)
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

// forbidden describes what a cluster does not allow, with the rules to add.
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
		message: fmt.Sprintf("%s does not let this virtual kubelet %s. Add to %s:\n%s", s, doing, s.place(role), text)}
}

// place is where rules are to be added. What stands before the names of roles is known of this installation alone.
func (s *side) place(role rbac.Role) string {
	if !s.remote {
		return "ClusterRole " + role.Named(s.prefix) + " here"
	}
	namespaces := "the whole cluster"
	if role.Scope == rbac.ConsumerScope {
		namespaces = "its remote namespaces"
	}
	return fmt.Sprintf("the ClusterRole there that is bound to %s in %s, its name ends in -%s", s.home, namespaces, role.Name)
}
