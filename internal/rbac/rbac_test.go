// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/api/wire"
)

// TestEveryRuleIsBounded checks limits that apply to every identity, including roles that are added later.
func TestEveryRuleIsBounded(t *testing.T) {
	for _, role := range Roles() {
		if role.Purpose == "" || role.Scope == "" || len(role.Rules) == 0 {
			t.Errorf("%s lacks purpose, scope or rules", role.Name)
		}
		for _, rule := range role.Rules {
			if !strings.HasPrefix(rule.Reason, "to ") {
				t.Errorf("%s: the reason %q does not continue the sentence \"granted to …\"", role.Name, rule.Reason)
			}
			if role.Name == PeeringUserInstallation().Name && slices.Equal(rule.Resources, []string{"configmaps"}) && slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
				// This role is for an administrator. liqoctl finds the ConfigMaps of the installation by a label, so
				// the rule cannot list their names.
				continue
			}
			if role.Name == ControllerManagerPluginSources().Name && role.Scope == NamespaceScope && isSourceOfPlugins(rule.PolicyRule) {
				// Users who declare plugins choose the names of the Secrets, so the rule cannot list the names. The
				// role is off by default, and applies only in the namespace of the installation.
				continue
			}
			if role.Name == ControllerManagerCredentials().Name && role.Scope == TenantScope {
				// The names of the Secrets are those of Identities, so the rule cannot list them. The role is off by
				// default, and admission policies let it be bound in tenant namespaces only.
				continue
			}
			for _, problem := range excessive(role.Scope, rule.PolicyRule) {
				t.Errorf("%s: %s in %+v", role.Name, problem, rule.PolicyRule)
			}
		}
	}
}

// isSourceOfPlugins reports whether a rule is one of the two rules that permit reading the sources of declared
// plugins. These rules do not permit listing or watching Secrets.
func isSourceOfPlugins(rule rbacv1.PolicyRule) bool {
	return slices.Equal(rule.Resources, []string{"configmaps"}) && slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) ||
		slices.Equal(rule.Resources, []string{"secrets"}) && slices.Equal(rule.Verbs, []string{"get"})
}

// excessive returns the permissions of a rule that none of Refract's processes may have.
func excessive(scope Scope, rule rbacv1.PolicyRule) (problems []string) {
	// Secrets and ConfigMaps are read and written only in namespaces that one consumer has offloaded to another
	// cluster.
	reflected := scope == ExtendedScope || scope == ConsumerScope
	named := len(rule.ResourceNames) > 0
	for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
		if slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "*") }) {
			problems = append(problems, "a wildcard")
		}
	}
	for _, verb := range []string{"deletecollection", "escalate", "impersonate"} {
		if slices.Contains(rule.Verbs, verb) {
			problems = append(problems, "the verb "+verb)
		}
	}
	// To create a role or a binding grants only permissions that the creator has, or roles that it may bind. Admission
	// policies limit the rules and the subjects.
	toCreate := slices.Equal(rule.Verbs, []string{"create"})
	// Reading or deleting roles does not grant permissions. Admission policies limit which roles may be deleted.
	takesAway := !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return verb != "get" && verb != "list" && verb != "delete" })
	if slices.Contains(rule.Resources, "clusterroles") && !takesAway && !toCreate && !(named && slices.Equal(rule.Verbs, []string{"bind"})) {
		problems = append(problems, "more of clusterroles than to bind named ones, or to read, create or delete them")
	}
	if slices.Contains(rule.Resources, "clusterrolebindings") && !takesAway && !toCreate {
		problems = append(problems, "more of clusterrolebindings than to read, create or delete them")
	}
	for _, resource := range []string{"secrets", "configmaps"} {
		// The permission to create or delete Secrets without reading them reveals no data. Admission policies limit which
		// Secrets can be created or deleted.
		toDelete := slices.Equal(rule.Verbs, []string{"delete"})
		if slices.Contains(rule.Resources, resource) && !named && !reflected && !toCreate && !toDelete {
			problems = append(problems, resource+" without a name")
		}
	}
	// Tokens are restricted, too: a virtual kubelet may only create them, and only for pods that are offloaded from the
	// namespace.
	tokens := slices.Contains(rule.Resources, "serviceaccounts/token")
	// A consumer renews its own tokens.
	own := scope == ConsumerScope && slices.Equal(rule.ResourceNames, []string{wire.ConsumerServiceAccount})
	if tokens && (!toCreate || scope != ExtendedScope && !own) {
		problems = append(problems, "serviceaccounts/token")
	}
	if slices.Contains(rule.Resources, "nodes/proxy") {
		problems = append(problems, "nodes/proxy")
	}
	subresource := !slices.ContainsFunc(rule.Resources, func(resource string) bool { return !strings.Contains(resource, "/") })
	if named && slices.Contains(rule.Verbs, "create") && !subresource {
		problems = append(problems, "a named create, which RBAC never matches,")
	}
	return problems
}

func TestRulesYAMLIsTheRules(t *testing.T) {
	for _, role := range Roles() {
		text, err := RulesYAML(role)
		require.NoError(t, err)
		var rules []rbacv1.PolicyRule
		require.NoErrorf(t, yaml.UnmarshalStrict(text, &rules), "%s", role.Name)
		if len(rules) != len(role.Rules) {
			t.Errorf("%s: %d rules were written, want %d", role.Name, len(rules), len(role.Rules))
		}
		for _, rule := range role.Rules {
			if !strings.Contains(string(text), rule.Reason) {
				t.Errorf("%s: the reason %q was not written", role.Name, rule.Reason)
			}
		}
	}
}
