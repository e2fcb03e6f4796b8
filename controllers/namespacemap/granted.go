// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
)

// defaultRegrantDelay is how often, by default, the permissions of a consumer are read. Changes to permissions are not
// watched.
const defaultRegrantDelay = 10 * time.Minute

const uncountedGrantReason = "UncountedKinds"

// grantedCounts contains the limits for the kinds that the provider grants a consumer beyond the chart's role, such as
// kinds of ReflectedResources.
type grantedCounts struct {
	counts corev1.ResourceList
	// uncountable are resources that a ResourceQuota cannot count.
	uncountable []string
	until       time.Time
}

// getGrantedCounts returns limits for the kinds that RBAC allows a consumer to create in a remote namespace beyond
// its role in the chart.
func (c *Controller) getGrantedCounts(ctx context.Context, nm *offloading.NamespaceMap, namespace string) (corev1.ResourceList, error) {
	if c.options.DefaultObjectCount <= 0 {
		return nil, nil
	}
	key := types.NamespacedName{Name: namespace}
	known, ok := c.granted.Get(key)
	if !ok || time.Now().After(known.until) {
		rules, err := c.listRules(ctx, nm, namespace)
		if err != nil {
			return nil, fmt.Errorf("reading what consumer %s may create in namespace %s, %w", nm.Labels[wire.OriginIDLabel], namespace, err)
		}
		known = c.countResources(rules)
		known.until = time.Now().Add(c.spreadRegrant())
		c.granted.Set(key, known)
	}
	if len(known.uncountable) > 0 {
		c.report.Warn(nm, uncountedGrantReason, mapAction, fmt.Sprintf(
			"RBAC lets this consumer create %s in namespace %s, whose number cannot be limited. Name the resources and API groups in its roles, instead of *",
			strings.Join(known.uncountable, ", "), namespace))
	}
	return known.counts, nil
}

// listRules returns the RBAC rules of a consumer in a namespace, including the rules of its role before the role is
// bound.
func (c *Controller) listRules(ctx context.Context, nm *offloading.NamespaceMap, namespace string) (rules []rbacv1.PolicyRule, err error) {
	own := c.roleBinding(nm, namespace)
	isConsumer := matchConsumer(nm, own.Subjects)
	everywhere, err := c.grants.listRoles(ctx, nm.Namespace, isConsumer)
	if err != nil {
		return nil, err
	}
	bindings := &rbacv1.RoleBindingList{}
	if err := c.uncached.List(ctx, bindings, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	roles := sets.New(own.RoleRef).Insert(everywhere...)
	for i := range bindings.Items {
		if slices.ContainsFunc(bindings.Items[i].Subjects, isConsumer) {
			roles.Insert(bindings.Items[i].RoleRef)
		}
	}
	for ref := range roles {
		granted, err := c.rulesOf(ctx, nm.Namespace, namespace, ref)
		if err != nil {
			return nil, err
		}
		rules = append(rules, granted...)
	}
	return rules, nil
}

// rulesOf returns the rules of a role that is bound to the consumer of a tenant namespace. It returns no rules if the
// role does not exist.
func (c *Controller) rulesOf(ctx context.Context, tenant, namespace string, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	if ref.Kind != "Role" {
		return c.grants.rulesOf(ctx, tenant, ref.Name)
	}
	role := &rbacv1.Role{}
	err := c.uncached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, role)
	return role.Rules, client.IgnoreNotFound(err)
}

// matchConsumer returns a function that reports whether a subject is the consumer of a NamespaceMap, or a group that
// contains all identities of the consumer.
func matchConsumer(nm *offloading.NamespaceMap, identities []rbacv1.Subject) func(rbacv1.Subject) bool {
	origin := nm.Labels[wire.OriginIDLabel]
	all := append([]rbacv1.Subject{rbac.User(origin)}, identities...)
	for _, identity := range identities {
		if identity.Kind == rbacv1.ServiceAccountKind {
			all = append(all, rbac.User(serviceaccount.MakeUsername(identity.Namespace, identity.Name)))
		}
	}
	for _, group := range []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + nm.Namespace} {
		all = append(all, rbac.Group(group))
	}
	ofAnySlice := auth.ResourceSliceUser("", origin)
	return func(subject rbacv1.Subject) bool {
		return slices.Contains(all, subject) || subject.Kind == rbacv1.UserKind && strings.HasSuffix(subject.Name, ofAnySlice)
	}
}

// countedElsewhere contains resources without a default limit. The chart's values contain a limit for each resource of
// the consumer's role. The other resources are created by controllers of this cluster on behalf of a consumer, within
// other limits.
var countedElsewhere = func() sets.Set[schema.GroupResource] {
	known := sets.New(
		schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: "events.k8s.io", Resource: "events"},
		schema.GroupResource{Resource: "endpoints"}, schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"},
		schema.GroupResource{Group: "apps", Resource: "replicasets"}, schema.GroupResource{Group: "apps", Resource: "controllerrevisions"},
	)
	for _, role := range []rbac.Role{rbac.VirtualKubeletRemote(), rbac.RemoteNetworkPolicies(), rbac.RemoteDisruptionBudgets()} {
		for i := range role.Rules {
			known.Insert(creatableResources(&role.Rules[i].PolicyRule)...)
		}
	}
	return known
}()

// unstored contains resources that the API server does not store, so that their objects cannot be counted. A limit for
// them would be removed and added again forever.
var unstored = sets.New(
	schema.GroupResource{Resource: "bindings"},
	schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
	schema.GroupResource{Group: "authorization.openshift.io", Resource: "localresourceaccessreviews"},
	schema.GroupResource{Group: "authorization.openshift.io", Resource: "localsubjectaccessreviews"},
	schema.GroupResource{Group: "authorization.openshift.io", Resource: "selfsubjectrulesreviews"},
	schema.GroupResource{Group: "authorization.openshift.io", Resource: "subjectrulesreviews"},
	schema.GroupResource{Group: "security.openshift.io", Resource: "podsecuritypolicyreviews"},
	schema.GroupResource{Group: "security.openshift.io", Resource: "podsecuritypolicyselfsubjectreviews"},
	schema.GroupResource{Group: "security.openshift.io", Resource: "podsecuritypolicysubjectreviews"},
)

// creatableResources returns the resources that a rule permits its subjects to create.
func creatableResources(rule *rbacv1.PolicyRule) (resources []schema.GroupResource) {
	if !slices.Contains(rule.Verbs, "create") && !slices.Contains(rule.Verbs, rbacv1.VerbAll) {
		return nil
	}
	for _, group := range rule.APIGroups {
		for _, name := range rule.Resources {
			if !strings.Contains(name, "/") {
				resources = append(resources, schema.GroupResource{Group: group, Resource: name})
			}
		}
	}
	return resources
}

// countResources returns the limits for the resources that rules allow a consumer to create and that this cluster
// serves.
func (c *Controller) countResources(rules []rbacv1.PolicyRule) grantedCounts {
	granted := grantedCounts{counts: corev1.ResourceList{}}
	for i := range rules {
		for _, created := range creatableResources(&rules[i]) {
			name := "count/" + created.String()
			switch {
			case countedElsewhere.Has(created), unstored.Has(created):
			case created.Group == rbacv1.APIGroupAll || created.Resource == rbacv1.ResourceAll, len(validation.IsQualifiedName(name)) > 0:
				granted.uncountable = append(granted.uncountable, created.String())
			case c.isNamespaced(created):
				granted.counts[corev1.ResourceName(name)] = *resource.NewQuantity(c.options.DefaultObjectCount, resource.DecimalSI)
			}
		}
	}
	slices.Sort(granted.uncountable)
	granted.uncountable = slices.Compact(granted.uncountable)
	return granted
}

// isNamespaced reports whether this cluster serves a namespaced resource. If discovery fails, the resource counts as
// namespaced.
func (c *Controller) isNamespaced(resource schema.GroupResource) bool {
	kind, err := c.client.RESTMapper().KindFor(resource.WithVersion(""))
	if err != nil {
		return !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err)
	}
	mapping, err := c.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return err != nil || mapping.Scope.Name() == meta.RESTScopeNameNamespace
}

// spreadRegrant returns the delay until the permissions of a consumer in a namespace are read again. The delays are
// random, because all permissions are read at the same time after a restart.
func (c *Controller) spreadRegrant() time.Duration {
	delay := c.regrantDelay()
	return delay*6/10 + rand.N(1+delay*3/10) //nolint:gosec // it only spreads load
}

// regrantAfter returns the delay until a map must be reconciled to read the permissions in one of its namespaces again;
// 0 means never. Namespaces that are due within a tenth of the delay are handled together.
func (c *Controller) regrantAfter(namespace string) time.Duration {
	if c.options.DefaultObjectCount <= 0 {
		return 0
	}
	known, ok := c.granted.Get(types.NamespacedName{Name: namespace})
	if !ok {
		return c.regrantDelay()
	}
	return max(time.Until(known.until), c.regrantDelay()/10)
}

func (c *Controller) regrantDelay() time.Duration {
	if c.options.RegrantDelay > 0 {
		return c.options.RegrantDelay
	}
	return defaultRegrantDelay
}
