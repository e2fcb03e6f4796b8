// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
)

// Exception lists permissions of a role that the recorded tests need not use.
type Exception struct {
	// Role is the name of the role in package rbac.
	Role string
	// Permissions lists permissions in the notation of Compare, such as "patch pods/resize".
	Permissions []string
	// Tests names tests in another package that use the permissions under the policies, as "FOLDER TEST".
	Tests []string
	// Reason explains why there is no such test. It is empty if Tests is set.
	Reason string
	// Timing is true if timing determines whether the recorded tests use the permissions. Without it, an exception for
	// a permission that is used is an error.
	Timing bool
}

// permission is one kind of write that a role permits.
type permission struct {
	text    string
	reason  string
	matches func(Write) bool
}

// patterns replaces the placeholders in the names of rules with patterns that match the names in a cluster. Roles have
// the default prefix.
var patterns = strings.NewReplacer(
	rbac.NodeNamePlaceholder, "*",
	rbac.KubeconfigSecretPlaceholder, "kubeconfig-*",
	rbac.GatewayRolePlaceholder, rbac.GatewayTenant().Named(""),
	rbac.GatewayNodesRolePlaceholder, rbac.GatewayNodes().Named(""),
	rbac.LocalRolePlaceholder, rbac.VirtualKubeletLocal().Named(""),
	rbac.RemoteRolePlaceholder, rbac.VirtualKubeletRemote().Named(""),
	rbac.TenantRolePlaceholder, rbac.RemoteTenant().Named(""),
	rbac.ControlPlaneRolePlaceholder, rbac.RemoteControlPlane().Named(""),
	rbac.RenewalRolePlaceholder, rbac.RemoteRenewal().Named(""),
	rbac.ExtendedRolePlaceholder, rbac.VirtualKubeletExtended().Named(""),
)

// remedy is the end of the message about a permission that no test uses.
const remedy = "Let a test use it under the policies, or name the test of another package that does in the exceptions, " +
	"or remove the permission from internal/rbac"

// Compare returns a message for each write that a role permits and that is neither recorded nor covered by an
// exception. It also returns a message for each exception that is not needed, because the write is recorded or no role
// permits it.
func Compare(roles []rbac.Role, record *Record, exceptions []Exception) (problems []string) {
	problems = Stale(roles, exceptions)
	record.mu.Lock()
	defer record.mu.Unlock()
	for _, role := range roles {
		permissions, err := permissionsOf(role)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		for _, p := range permissions {
			used, exception := p.used(record), find(exceptions, role.Name, p.text)
			switch {
			case !used && exception == nil:
				unused := fmt.Sprintf("role %s: no test uses %q, which is granted %s. ", role.Name, p.text, p.reason)
				problems = append(problems, unused+remedy)
			case used && exception != nil && !exception.Timing:
				problems = append(problems, fmt.Sprintf("role %s: %q was used. Remove the exception", role.Name, p.text))
			}
		}
	}
	return problems
}

// Stale returns a message for each exception that names a role or a permission that does not exist, repeats another
// exception, or does not have either tests or a reason.
func Stale(roles []rbac.Role, exceptions []Exception) (problems []string) {
	granted := map[string]bool{}
	for _, role := range roles {
		permissions, _ := permissionsOf(role) // Compare reports this error.
		for _, p := range permissions {
			granted[role.Name+": "+p.text] = true
		}
	}
	seen := map[string]bool{}
	for _, e := range exceptions {
		if (len(e.Tests) > 0) == (e.Reason != "") || len(e.Permissions) == 0 {
			problems = append(problems, fmt.Sprintf("role %s: the exception of %q needs either tests or a reason", e.Role, e.Permissions))
		}
		for _, p := range e.Permissions {
			key := e.Role + ": " + p
			if !granted[key] {
				problems = append(problems, fmt.Sprintf("role %s does not grant %q. Remove the exception", e.Role, p))
			}
			if seen[key] {
				problems = append(problems, fmt.Sprintf("role %s: %q has two exceptions. Remove one", e.Role, p))
			}
			seen[key] = true
		}
	}
	return problems
}

// find returns the exception for a permission of a role, or nil if there is none.
func find(exceptions []Exception, role, text string) *Exception {
	i := slices.IndexFunc(exceptions, func(e Exception) bool { return e.Role == role && slices.Contains(e.Permissions, text) })
	if i < 0 {
		return nil
	}
	return &exceptions[i]
}

func (p permission) used(record *Record) bool {
	for write := range record.writes {
		if p.matches(write) {
			return true
		}
	}
	return false
}

// permissionsOf returns the writes that a role permits. It returns none for roles of users.
func permissionsOf(role rbac.Role) (all []permission, err error) {
	identity, namespace, err := holderOf(role)
	if err != nil || identity == "" {
		return nil, err
	}
	named, seen := role.PolicyRules(patterns), map[string]bool{}
	for i, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					text := spell(verb, group, resource, rule.ResourceNames)
					if seen[text] || reads(verb) || group == rbac.MarkerGroup && resource == rbac.MarkerResource {
						continue
					}
					seen[text] = true
					all = append(all, permission{
						text: text, reason: rule.Reason,
						matches: func(w Write) bool {
							return w.Identity == identity && w.Verb == verb && w.Group == group && w.Resource == resource &&
								match([]string{namespace}, w.Namespace) && match(named[i].ResourceNames, w.Name)
						},
					})
				}
			}
		}
	}
	return all, nil
}

// rolesInTenantNamespaces lists the roles that are bound only in tenant namespaces.
var rolesInTenantNamespaces = []string{
	rbac.ControllerManagerTenant().Name, rbac.ControllerManagerProbe().Name, rbac.VirtualKubeletTenant().Name,
	rbac.GatewayTenant().Name,
}

// holderOf returns the identity that holds a role, and a pattern of the namespaces where the role applies. The identity
// is empty for a role of users, or of a process that writes nothing.
func holderOf(role rbac.Role) (holder Identity, namespace string, err error) {
	namespace = role.Namespace
	switch {
	case slices.Contains(rolesInTenantNamespaces, role.Name):
		namespace = wire.TenantNamespacePrefix + "*"
	case namespace == "":
		namespace = "*"
	}
	switch {
	case strings.HasPrefix(role.Name, "peering-user-"), role.Name == rbac.RemoteNetwork().Name: // users hold them, with liqoctl or refractctl
		return "", "", nil
	case role.Name == rbac.HomeNames().Name, role.Name == rbac.HomeNamesAddresses().Name: // it only reads
		return "", "", nil
	case strings.HasPrefix(role.Name, "controller-manager"):
		return Manager, namespace, nil
	case strings.HasPrefix(role.Name, "remote-"), strings.HasPrefix(role.Name, rbac.VirtualKubeletRemote().Name):
		return Consumer, namespace, nil
	case strings.HasPrefix(role.Name, "virtual-kubelet-"):
		return Kubelet, namespace, nil
	case role.Name == rbac.GatewayTenant().Name, strings.HasPrefix(role.Name, "gateway-"):
		return Gateway, namespace, nil
	}
	return "", "", fmt.Errorf("role %s: package permissions does not know which identity has it. Add the role to holderOf", role.Name)
}

// spell returns a permission in the notation of kubectl, such as "patch shadowpods.offloading.liqo.io/status". If the
// permission is restricted to names, the first name follows, with an ellipsis if there are more.
func spell(verb, group, resource string, names []string) string {
	whole, subresource, isSub := strings.Cut(resource, "/")
	if group != "" {
		whole += "." + group
	}
	if isSub {
		whole += "/" + subresource
	}
	text := verb + " " + whole
	if len(names) > 0 {
		text += " " + names[0]
	}
	if len(names) > 1 {
		text += " …"
	}
	return text
}

// match reports whether a name matches one of the patterns. If there are no patterns, every name matches.
func match(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	})
}
