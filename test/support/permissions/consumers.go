// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/internal/rbac"
)

// KindsOfConsumers returns the resources that the roles of consumers permit to write, without subresources. It leaves
// out the role of peering users, because it belongs to people who join a consumer.
func KindsOfConsumers() map[schema.GroupResource]bool {
	kinds := map[schema.GroupResource]bool{}
	for _, role := range rbac.Roles() {
		if role.Scope != rbac.ConsumerScope || role.Name == rbac.PeeringUserTenant().Name {
			continue
		}
		for _, rule := range role.Rules {
			if !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return verb == "create" || verb == "update" || verb == "patch" }) {
				continue
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					if !strings.Contains(resource, "/") {
						kinds[schema.GroupResource{Group: group, Resource: resource}] = true
					}
				}
			}
		}
	}
	return kinds
}
