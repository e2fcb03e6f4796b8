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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/rbac"
)

const (
	// reviewsAtOnce limits the number of concurrent access reviews, because there may be hundreds of remote
	// namespaces.
	reviewsAtOnce = 8
	// namedNamespaces is the maximum number of namespaces that a message lists.
	namedNamespaces = 3
)

// lack describes the permissions that are missing for a reflection.
type lack struct {
	fault *fault
	// some means that reflection can begin, because at least one namespace has all permissions on both sides.
	some bool
}

// checkPermissions checks in both clusters whether the virtual kubelet has the permissions for the plan. It returns
// nil if all are granted.
func (f *Follower) checkPermissions(ctx context.Context, p plan) *lack {
	remoteNamespaces := f.options.Engine.Namespaces()
	here := rbac.ReflectedLocal(p.source.Group, p.source.Resource, p.patchedResources()...)
	shut, err := f.local.deniedPermissions(ctx, here, slices.Sorted(maps.Keys(remoteNamespaces)))
	if err != nil {
		return reviewFailure(err)
	}
	there := rbac.ReflectedRemote(p.target.Group, p.target.Resource)
	closed, err := f.remote.deniedPermissions(ctx, there, slices.Sorted(maps.Values(remoteNamespaces)))
	if err != nil {
		return reviewFailure(err)
	}
	var sentences []string
	if len(shut) > 0 {
		sentences = append(sentences, f.local.describeDenials(here, shut))
	}
	if len(closed) > 0 {
		sentences = append(sentences, f.remote.describeDenials(there, closed))
	}
	if len(sentences) == 0 {
		return nil
	}
	return &lack{some: anyAllowed(remoteNamespaces, shut, closed),
		fault: &fault{reason: pluginsv1alpha1.MissingPermissionReason, message: strings.Join(sentences, "\n")}}
}

// anyAllowed reports whether there is at least one namespace where no permission is denied, neither in this cluster nor
// in the remote namespace on the provider.
func anyAllowed(remoteNamespaces map[string]string, shut, closed denials) bool {
	here, there := shut.deniedNamespaces(), closed.deniedNamespaces()
	for local, remoteNamespace := range remoteNamespaces {
		if !slices.Contains(here, local) && !slices.Contains(there, remoteNamespace) {
			return true
		}
	}
	return false
}

func reviewFailure(err error) *lack {
	var known *fault
	if !errors.As(err, &known) {
		known = &fault{reason: pluginsv1alpha1.UnreachableReason, message: err.Error()}
	}
	return &lack{fault: known}
}

// rulesOfResource returns a copy of the role with only the rules about one resource and its subresources.
func rulesOfResource(role rbac.Role, resource schema.GroupResource) rbac.Role {
	role.Rules = slices.DeleteFunc(slices.Clone(role.Rules), func(rule rbac.Rule) bool {
		return !slices.Contains(rule.APIGroups, resource.Group) || !slices.ContainsFunc(rule.Resources, func(r string) bool {
			name, _, _ := strings.Cut(r, "/")
			return name == resource.Resource
		})
	})
	return role
}

// denial is one denied verb on one resource in one namespace. An empty namespace means all namespaces.
type denial struct{ namespace, resource, verb string }

type denials []denial

func (d denials) deniedNamespaces() []string {
	seen := map[string]bool{}
	for _, one := range d {
		seen[one.namespace] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// deniedPermissions returns the permissions of a role that are denied in the namespaces.
func (s *side) deniedPermissions(ctx context.Context, role rbac.Role, namespaces []string) (denials, error) {
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

// deniedIn returns the required permissions that are denied in a namespace. Permissions that the namespace's rules do
// not contain are reviewed one by one.
func (s *side) deniedIn(ctx context.Context, namespace string, required []rbacv1.PolicyRule) (found denials, err error) {
	var known answer
	// The rules cannot be read for all namespaces, because a SelfSubjectRulesReview only works for a single namespace.
	if namespace != metav1.NamespaceAll {
		if known, err = s.namespaceRules(ctx, namespace); err != nil {
			return nil, err
		}
	}
	_, lacking := validation.Covers(known.rules, required)
	for _, one := range lacking { // each of these rules contains one verb and one resource
		allowed := false
		if !known.complete {
			if allowed, err = s.isAllowed(ctx, namespace, one.Verbs[0], one.APIGroups[0], one.Resources[0]); err != nil {
				return nil, err
			}
		}
		if !allowed {
			found = append(found, denial{namespace, one.Resources[0], one.Verbs[0]})
		}
	}
	return found, nil
}

// describeDenials lists the denied permissions and the rules to add.
func (s *side) describeDenials(role rbac.Role, denied denials) string {
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
	return s.forbiddenFault(strings.Join(doing, " and ")+listNamespaces(denied.deniedNamespaces()), role).Error()
}

// listNamespaces returns a text with the first few namespaces, for a message.
func listNamespaces(namespaces []string) string {
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

// forbiddenFault returns the fault that permissions are missing, with the rules to add.
func (s *side) forbiddenFault(doing string, role rbac.Role) error {
	rules := make([]rbacv1.PolicyRule, 0, len(role.Rules))
	for _, rule := range role.Rules {
		rules = append(rules, rule.PolicyRule)
	}
	text, err := yaml.Marshal(rules)
	if err != nil {
		text = []byte(fmt.Sprint(rules))
	}
	return &fault{reason: pluginsv1alpha1.MissingPermissionReason,
		message: fmt.Sprintf("%s does not let this virtual kubelet %s. Add to %s:\n%s", s, doing, s.roleAndCluster(role), text)}
}

// roleAndCluster returns a text with the cluster and the role that needs additional rules. It contains the full name of
// the role only for this cluster, because the prefix of role names in other installations is not known.
func (s *side) roleAndCluster(role rbac.Role) string {
	if !s.remote {
		return "ClusterRole " + role.Named(s.prefix) + " here"
	}
	namespaces := "the whole cluster"
	if role.Scope == rbac.ConsumerScope {
		namespaces = "its remote namespaces"
	}
	return fmt.Sprintf("the ClusterRole there that is bound to %s in %s, its name ends in -%s", s.home, namespaces, role.Name)
}
