// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultPrefix is the default prefix of the names of all roles. It is the same as in a Liqo installation.
const DefaultPrefix = "liqo"

// Placeholders stand for names that depend on the installation. This package replaces them when it converts a Role to
// an object, and so do the chart's templates.
const (
	// NodeNamePlaceholder is replaced with the name of the virtual node.
	NodeNamePlaceholder = "$(NODE_NAME)"
	// KubeconfigSecretPlaceholder is replaced with the name of the Secret that contains the kubeconfig for the
	// provider.
	KubeconfigSecretPlaceholder = "$(KUBECONFIG_SECRET)"
	// RemoteRolePlaceholder is replaced with the name of the role VirtualKubeletRemote, including the prefix.
	RemoteRolePlaceholder = "$(REMOTE_ROLE)"
	// TenantRolePlaceholder is replaced with the name of the role RemoteTenant, including the prefix.
	TenantRolePlaceholder = "$(TENANT_ROLE)"
	// ControlPlaneRolePlaceholder is replaced with the name of the role RemoteControlPlane, including the prefix.
	ControlPlaneRolePlaceholder = "$(CONTROL_PLANE_ROLE)"
	// RenewalRolePlaceholder is replaced with the name of the role RemoteRenewal, including the prefix.
	RenewalRolePlaceholder = "$(RENEWAL_ROLE)"
	// ExtendedRolePlaceholder is replaced with the name of the role VirtualKubeletExtended, including the prefix.
	ExtendedRolePlaceholder = "$(EXTENDED_ROLE)"
	// LocalRolePlaceholder is replaced with the name of the role VirtualKubeletLocal, including the prefix.
	LocalRolePlaceholder = "$(LOCAL_ROLE)"
	// GatewayRolePlaceholder is replaced with the name of the role GatewayTenant, including the prefix.
	GatewayRolePlaceholder = "$(GATEWAY_ROLE)"
	// CredentialsRolePlaceholder is replaced with the name of the role ControllerManagerCredentials, including the prefix.
	CredentialsRolePlaceholder = "$(CREDENTIALS_ROLE)"
	// GatewayNodesRolePlaceholder is replaced with the name of the role GatewayNodes, including the prefix.
	GatewayNodesRolePlaceholder = "$(GATEWAY_NODES_ROLE)"
)

// Scope selects the namespaces where the rules of a Role apply.
type Scope string

const (
	// ClusterScope stands for all namespaces. The rules apply through a ClusterRoleBinding.
	ClusterScope Scope = "Cluster"
	// ConsumerScope stands for the namespaces of one consumer. The rules apply through a RoleBinding to the same
	// ClusterRole in each of them.
	ConsumerScope Scope = "Consumer"
	// ExtendedScope stands for the offloaded namespaces. The rules apply through a RoleBinding to the same ClusterRole
	// in each of them.
	ExtendedScope Scope = "Extended"
	// TenantScope stands for the tenant namespace of one peer. The rules apply through a RoleBinding to a ClusterRole
	// that all peers share.
	TenantScope Scope = "Tenant"
	// NamespaceScope stands for a single namespace. The rules apply through a Role.
	NamespaceScope Scope = "Namespace"
)

// Rule is a policy rule with its reason.
type Rule struct {
	// Reason explains the rule. It completes the sentence "this is granted …".
	Reason string
	rbacv1.PolicyRule
}

// Role is a set of rules under one name.
type Role struct {
	// Name is the name without the prefix of the installation.
	Name string
	// Purpose describes who has the role, and what for.
	Purpose string
	// Scope selects the namespaces where the rules apply.
	Scope Scope
	// Namespace is the namespace of a Role of NamespaceScope. It is empty if the installation chooses it.
	Namespace string
	// Rules are the rules of the role, each with its reason.
	Rules []Rule
}

// Roles returns every role of every identity, in a fixed order.
func Roles() []Role {
	return []Role{
		VirtualKubeletLocal(), VirtualKubeletPlugins(), VirtualKubeletExtended(), VirtualKubeletTokens(), VirtualKubeletNode(), VirtualKubeletTenant(), VirtualKubeletLease(), VirtualKubeletAuthentication(),
		VirtualKubeletRemote(), RemoteNetworkPolicies(), RemoteDisruptionBudgets(), VirtualKubeletRemoteClusterwide(), RemoteControlPlane(), RemoteNetwork(), RemoteTenant(), RemoteRenewal(), PeeringUserTenant(), PeeringUserInstallation(),
		ControllerManager(), ControllerManagerTenant(), ControllerManagerProbe(), ControllerManagerVirtualNodes(), ControllerManagerKubeletAccounts(), ControllerManagerServingCertificates(), ControllerManagerNodeFailure(), ControllerManagerResourceSlices(), ControllerManagerResourceOffers(), ControllerManagerTenantAccess(), ControllerManagerGrantedKinds(), ControllerManagerResourceRequests(), ControllerManagerAuthentication(), ControllerManagerIdentities(), ControllerManagerCredentials(), ControllerManagerClusterKey(), ControllerManagerPlugins(), ControllerManagerPluginSources(), ControllerManagerLeaderElection(), ControllerManagerWebhook(),
		ControllerManagerAddresses(), ControllerManagerGateways(), ControllerManagerGatewayKeys(), ControllerManagerPodAddresses(),
		GatewayTenant(), GatewayNodes(), GatewayPods(), GatewayAgent(), GatewayAgentAddresses(),
		ControllerManagerHomeNames(), HomeNames(), HomeNamesAddresses(),
	}
}

// Named returns the name of the role in an installation with the given prefix. An empty prefix means DefaultPrefix.
func (r Role) Named(prefix string) string { return prefixed(prefix, r.Name) }

// PolicyRules returns the rules with their placeholders replaced.
func (r Role) PolicyRules(replace *strings.Replacer) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, 0, len(r.Rules))
	for i := range r.Rules {
		rule := *r.Rules[i].DeepCopy()
		for j := range rule.ResourceNames {
			rule.ResourceNames[j] = replace.Replace(rule.ResourceNames[j])
		}
		rules = append(rules, rule)
	}
	return rules
}

// grant returns a Rule. As in RBAC, a resource may include a subresource.
func grant(reason, group string, resources, verbs []string, names ...string) Rule {
	return Rule{Reason: reason, PolicyRule: rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: resources, Verbs: verbs, ResourceNames: names,
	}}
}

// on and do return their arguments. They make a call of grant readable.
func on(resources ...string) []string { return resources }
func do(verbs ...string) []string     { return verbs }

// User returns the subject that has the common name of a client certificate as its name.
func User(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// Group returns the subject that has the organization of a client certificate as its name.
func Group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

// ServiceAccount returns the subject for a service account.
func ServiceAccount(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

func (r Role) clusterRole(name string, replace *strings.Replacer) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      r.PolicyRules(replace),
	}
}

func (r Role) role(namespace, name string, replace *strings.Replacer) *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Rules:      r.PolicyRules(replace),
	}
}

func clusterRoleBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}

func roleBinding(namespace, name, roleKind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: roleKind, Name: role},
		Subjects:   subjects,
	}
}
