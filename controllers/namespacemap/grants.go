// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxGrantsAge is how long grants are cached. It is long enough to reconcile many namespaces of a consumer.
const maxGrantsAge = time.Minute

// clusterGrants caches, for a short time, the permissions that consumers get from ClusterRoleBindings and ClusterRoles,
// because they are the same in all namespaces of a consumer. It is safe for concurrent use.
type clusterGrants struct {
	live client.Reader
	age  time.Duration

	mu         sync.Mutex
	ofConsumer map[string]*consumerGrants // keyed by tenant namespace
}

// consumerGrants contains the grants of one consumer.
type consumerGrants struct {
	mu         sync.Mutex // held while the grants are read, so that all callers use the same response
	until      time.Time
	everywhere []rbacv1.RoleRef
	rules      map[string][]rbacv1.PolicyRule // keyed by the name of the ClusterRole
}

// grantsOf returns the cached grants of the consumer of a tenant namespace.
func (g *clusterGrants) grantsOf(tenant string) *consumerGrants {
	g.mu.Lock()
	defer g.mu.Unlock()
	grants, ok := g.ofConsumer[tenant]
	if !ok {
		if g.ofConsumer == nil {
			g.ofConsumer = map[string]*consumerGrants{}
		}
		grants = &consumerGrants{}
		g.ofConsumer[tenant] = grants
	}
	return grants
}

// listRoles returns the roles that ClusterRoleBindings bind to matching subjects. If the consumer's cached grants are
// too old, it drops them first.
func (g *clusterGrants) listRoles(ctx context.Context, tenant string, match func(rbacv1.Subject) bool) ([]rbacv1.RoleRef, error) {
	grants := g.grantsOf(tenant)
	grants.mu.Lock()
	defer grants.mu.Unlock()
	if time.Now().Before(grants.until) {
		return grants.everywhere, nil
	}
	bindings := &rbacv1.ClusterRoleBindingList{}
	if err := g.live.List(ctx, bindings); err != nil {
		return nil, err
	}
	var everywhere []rbacv1.RoleRef
	for i := range bindings.Items {
		if slices.ContainsFunc(bindings.Items[i].Subjects, match) {
			everywhere = append(everywhere, bindings.Items[i].RoleRef)
		}
	}
	grants.everywhere, grants.rules, grants.until = everywhere, map[string][]rbacv1.PolicyRule{}, time.Now().Add(g.age)
	return everywhere, nil
}

// rulesOf returns the rules of a ClusterRole that is bound to a consumer. It returns no rules if the role does not
// exist.
func (g *clusterGrants) rulesOf(ctx context.Context, tenant, name string) ([]rbacv1.PolicyRule, error) {
	grants := g.grantsOf(tenant)
	grants.mu.Lock()
	defer grants.mu.Unlock()
	if rules, ok := grants.rules[name]; ok {
		return rules, nil
	}
	role := &rbacv1.ClusterRole{}
	if err := g.live.Get(ctx, client.ObjectKey{Name: name}, role); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if grants.rules != nil { // nil if the consumer was forgotten in the meantime
		grants.rules[name] = role.Rules
	}
	return role.Rules, nil
}

// forget drops the grants of a consumer whose tenant namespace is gone.
func (g *clusterGrants) forget(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ofConsumer, tenant)
}
