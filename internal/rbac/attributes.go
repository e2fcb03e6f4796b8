// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Attributes returns all requests that the rules allow in a namespace, as attributes of access reviews.
func Attributes(namespace string, rules []rbacv1.PolicyRule) (all []authorizationv1.ResourceAttributes) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, whole := range rule.Resources {
				resource, subresource, _ := strings.Cut(whole, "/")
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, authorizationv1.ResourceAttributes{Namespace: namespace, Group: group, Resource: resource, Subresource: subresource, Verb: verb, Name: name})
					}
				}
			}
		}
	}
	return all
}
