// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refract-project/refract/api/wire"
)

// Object is a Role, a ClusterRole, a RoleBinding or a ClusterRoleBinding.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kubelet identifies one virtual kubelet, in its own cluster.
type Kubelet struct {
	// Prefix is the prefix of the names of the roles. An empty prefix means DefaultPrefix.
	Prefix string
	// NodeName is the name of the VirtualNode and of its Node.
	NodeName string
	// TenantNamespace is the namespace of the VirtualNode, the NamespaceMap and the leases.
	TenantNamespace string
	// KubeconfigSecret is the name of the Secret in TenantNamespace with the kubeconfig for the provider.
	KubeconfigSecret string
	// Subject is the identity of the virtual kubelet.
	Subject rbacv1.Subject
	// Plugins is true if the controller manager manages declared plugins.
	Plugins bool
}

// Objects returns the roles and bindings of the virtual kubelet. The namespaces must exist.
func (k Kubelet) Objects() []Object {
	local, extended := VirtualKubeletLocal(), VirtualKubeletExtended()
	if k.Plugins {
		local.Rules = append(local.Rules, VirtualKubeletPlugins().Rules...)
	}
	extended.Rules = append(extended.Rules, VirtualKubeletTokens().Rules...)
	none := strings.NewReplacer()
	return append([]Object{extended.clusterRole(prefixed(k.Prefix, extended.Name), none), local.clusterRole(prefixed(k.Prefix, local.Name), none)}, k.Access()...)
}

// Access returns the roles and bindings that belong to this virtual kubelet alone, the roles first. It leaves out the
// ClusterRoles that all virtual kubelets share.
func (k Kubelet) Access() (objects []Object) {
	replace := strings.NewReplacer(NodeNamePlaceholder, k.NodeName, KubeconfigSecretPlaceholder, k.KubeconfigSecret)
	local := prefixed(k.Prefix, VirtualKubeletLocal().Name)
	// The binding has the same name as in Liqo.
	bindings := []Object{clusterRoleBinding(prefixed(k.Prefix, "node-"+k.NodeName), local, k.Subject)}
	for _, r := range []Role{VirtualKubeletNode(), VirtualKubeletTenant(), VirtualKubeletLease(), VirtualKubeletAuthentication()} {
		own := prefixed(k.Prefix, r.Name) + "-" + k.NodeName
		if r.Scope == ClusterScope {
			objects, bindings = append(objects, r.clusterRole(own, replace)), append(bindings, clusterRoleBinding(own, own, k.Subject))
			continue
		}
		namespace := r.Namespace
		if namespace == "" {
			namespace = k.TenantNamespace
		}
		objects, bindings = append(objects, r.role(namespace, own, replace)), append(bindings, roleBinding(namespace, own, "Role", own, k.Subject))
	}
	return append(objects, bindings...)
}

// ExtendedNamespace returns the binding that gives the virtual kubelet access to one offloaded namespace. The
// controller manager creates such bindings itself.
func (k Kubelet) ExtendedNamespace(namespace string) Object {
	name := prefixed(k.Prefix, VirtualKubeletExtended().Name)
	return roleBinding(namespace, name+"-"+k.NodeName, "ClusterRole", name, k.Subject)
}

// Everywhere returns the binding of the virtual kubelet's role in all namespaces. It is needed if another
// implementation's controllers run, which do not bind the role in offloaded namespaces.
func (k Kubelet) Everywhere() Object {
	name := prefixed(k.Prefix, VirtualKubeletExtended().Name)
	return clusterRoleBinding(name+"-"+k.NodeName, name, k.Subject)
}

// Consumer identifies one consumer, in the cluster of its provider.
type Consumer struct {
	// Prefix is the prefix of the names of the roles. An empty prefix means DefaultPrefix.
	Prefix string
	// Subject is the identity of the consumer's virtual kubelets. In a Liqo peering it is the group named after the
	// consumer's cluster ID.
	Subject rbacv1.Subject
	// Account is the ServiceAccount whose tokens the consumer may also use to authenticate. nil means that the consumer
	// has no ServiceAccount.
	Account *rbacv1.Subject
}

// Peer returns the consumer with a cluster ID. The consumer authenticates with certificates, or with tokens of its
// ServiceAccount in its tenant namespace.
func Peer(prefix, clusterID string) Consumer {
	account := ServiceAccount(wire.TenantNamespace(clusterID), wire.ConsumerServiceAccount)
	return Consumer{Prefix: prefix, Subject: Group(clusterID), Account: &account}
}

func (c Consumer) subjects() []rbacv1.Subject {
	if c.Account == nil {
		return []rbacv1.Subject{c.Subject}
	}
	return []rbacv1.Subject{c.Subject, *c.Account}
}

// Objects returns the ClusterRoles of consumers, and the binding for permissions outside of the consumer's
// namespaces.
func (c Consumer) Objects() []Object {
	remote, controlPlane, clusterwide := VirtualKubeletRemote(), RemoteControlPlane(), VirtualKubeletRemoteClusterwide()
	remote.Rules = slices.Concat(remote.Rules, RemoteNetworkPolicies().Rules, RemoteDisruptionBudgets().Rules)
	none := strings.NewReplacer()
	name := prefixed(c.Prefix, clusterwide.Name)
	return []Object{
		remote.clusterRole(prefixed(c.Prefix, remote.Name), none),
		controlPlane.clusterRole(prefixed(c.Prefix, controlPlane.Name), none),
		clusterwide.clusterRole(name, none),
		clusterRoleBinding(name+"-"+c.Subject.Name, name, c.subjects()...),
	}
}

// RemoteNamespace returns the binding that gives the consumer access to one remote namespace. The controller manager
// creates such bindings itself.
func (c Consumer) RemoteNamespace(namespace string) Object {
	return c.bind(namespace, VirtualKubeletRemote())
}

// TenantNamespace returns the binding that gives the consumer access to its tenant namespace.
func (c Consumer) TenantNamespace(namespace string) Object {
	return c.bind(namespace, RemoteControlPlane())
}

// Renewal returns the binding that allows a consumer with certificates to request its next certificate in its tenant
// namespace.
func (c Consumer) Renewal(namespace string) Object {
	// The ServiceAccount needs no permission to request certificates, because the consumer renews the tokens of the
	// ServiceAccount itself.
	c.Account = nil
	return c.bind(namespace, RemoteRenewal())
}

func (c Consumer) bind(namespace string, r Role) Object {
	name := prefixed(c.Prefix, r.Name)
	return roleBinding(namespace, name+"-"+c.Subject.Name, "ClusterRole", name, c.subjects()...)
}

// Manager identifies the controller manager of a provider.
type Manager struct {
	// Prefix is the prefix of the names of the roles. An empty prefix means DefaultPrefix.
	Prefix string
	// Namespace is the namespace of the installation and of the leader election lease.
	Namespace string
	// Subject is the identity of the controller manager.
	Subject rbacv1.Subject
}

// Objects returns the roles and bindings of the controller manager. The namespace must exist.
func (m Manager) Objects() []Object {
	replace := strings.NewReplacer(
		RemoteRolePlaceholder, prefixed(m.Prefix, VirtualKubeletRemote().Name), ExtendedRolePlaceholder, prefixed(m.Prefix, VirtualKubeletExtended().Name))
	manager := ControllerManager()
	managerName := prefixed(m.Prefix, manager.Name)
	objects := []Object{
		manager.clusterRole(managerName, replace),
		clusterRoleBinding(managerName, managerName, m.Subject),
	}
	for _, own := range []Role{ControllerManagerLeaderElection(), ControllerManagerWebhook()} {
		name := prefixed(m.Prefix, own.Name)
		objects = append(objects, own.role(m.Namespace, name, replace), roleBinding(m.Namespace, name, "Role", name, m.Subject))
	}
	return objects
}

// Provider returns the role and the binding that allow the controller manager of a consumer to access one provider
// with the kubeconfig in the tenant namespace.
func (m Manager) Provider(tenantNamespace, kubeconfigSecret string) []Object {
	tenant := ControllerManagerTenant()
	name := prefixed(m.Prefix, tenant.Name) + "-" + kubeconfigSecret
	return []Object{
		tenant.role(tenantNamespace, name, strings.NewReplacer(KubeconfigSecretPlaceholder, kubeconfigSecret)),
		roleBinding(tenantNamespace, name, "Role", name, m.Subject),
	}
}

// Probe returns the role and the binding that allow the controller manager of a provider to probe the API server of
// one consumer with the kubeconfig in the tenant namespace.
func (m Manager) Probe(tenantNamespace string) []Object {
	probe := ControllerManagerProbe()
	name := prefixed(m.Prefix, probe.Name)
	return []Object{probe.role(tenantNamespace, name, strings.NewReplacer()), roleBinding(tenantNamespace, name, "Role", name, m.Subject)}
}

// HomeNames returns the role and the binding that allow the controller manager of a provider to read the address of the
// resolver in the tenant namespace of a consumer.
func (m Manager) HomeNames(tenantNamespace string) []Object {
	resolver := ControllerManagerHomeNames()
	name := prefixed(m.Prefix, resolver.Name)
	return []Object{resolver.role(tenantNamespace, name, strings.NewReplacer()), roleBinding(tenantNamespace, name, "Role", name, m.Subject)}
}

// VirtualNodes returns the role and the binding that allow the controller manager of a consumer to run, drain and
// remove virtual nodes.
func (m Manager) VirtualNodes() []Object {
	return m.everywhere(ControllerManagerVirtualNodes())
}

// KubeletAccounts returns the role and the binding that allow the controller manager of a consumer to create the
// ServiceAccounts of virtual kubelets, with their permissions.
func (m Manager) KubeletAccounts() []Object {
	return m.everywhere(ControllerManagerKubeletAccounts())
}

// ServingCertificates returns the role and the binding that allow the controller manager to approve the serving
// certificates of virtual kubelets.
func (m Manager) ServingCertificates() []Object {
	return m.everywhere(ControllerManagerServingCertificates())
}

// Addresses returns the role and the binding that allow the controller manager to grant the addresses of the network
// between the clusters.
func (m Manager) Addresses() []Object {
	return m.everywhere(ControllerManagerAddresses())
}

// Gateways returns the role and the binding that allow the controller manager to run gateways, and the roles of gateways. The
// namespace must exist.
func (m Manager) Gateways() []Object {
	roles := Gateways{Prefix: m.Prefix}.Roles()
	return slices.Concat(roles, m.everywhere(ControllerManagerGateways()), m.everywhere(ControllerManagerGatewayKeys()))
}

// PodAddresses returns the role and the binding that allow the controller manager to request addresses for offloaded
// pods, in addition to Gateways.
func (m Manager) PodAddresses() []Object { return m.everywhere(ControllerManagerPodAddresses()) }

// Identities returns the roles and bindings that allow the controller manager of a consumer to join providers by Liqo's
// protocol. The namespace of the installation must exist.
func (m Manager) Identities() []Object {
	credentials, key, none := ControllerManagerCredentials(), ControllerManagerClusterKey(), strings.NewReplacer()
	name := prefixed(m.Prefix, key.Name)
	return append(m.everywhere(ControllerManagerIdentities()),
		credentials.clusterRole(prefixed(m.Prefix, credentials.Name), none),
		key.role(m.Namespace, name, none), roleBinding(m.Namespace, name, "Role", name, m.Subject))
}

// CredentialsIn returns the binding that gives the controller manager of a consumer access to the Secrets of the tenant
// namespace of a provider. It creates such bindings itself.
func (m Manager) CredentialsIn(tenantNamespace string) *rbacv1.RoleBinding {
	name := prefixed(m.Prefix, ControllerManagerCredentials().Name)
	return roleBinding(tenantNamespace, name, "ClusterRole", name, m.Subject)
}

// NodeFailure returns the role and the binding that allow the controller manager to delete the pods of failed nodes.
func (m Manager) NodeFailure() []Object {
	return m.everywhere(ControllerManagerNodeFailure())
}

// ResourceSlices returns the role and the binding that allow the controller manager to create the Quotas of
// ResourceSlices.
func (m Manager) ResourceSlices() []Object {
	return m.everywhere(ControllerManagerResourceSlices())
}

// ResourceOffers returns the role and the binding that allow the controller manager of a provider to publish offers
// to consumers.
func (m Manager) ResourceOffers() []Object {
	return m.everywhere(ControllerManagerResourceOffers())
}

// TenantAccess returns the role and the binding that allow the controller manager of a provider to enforce the
// Tenants of consumers that refractctl has admitted.
func (m Manager) TenantAccess() []Object {
	return m.everywhere(ControllerManagerTenantAccess())
}

// GrantedKinds returns the role and the binding that allow the controller manager of a provider to limit the number of
// objects of kinds that consumers may create beyond their role in the chart.
func (m Manager) GrantedKinds() []Object {
	return m.everywhere(ControllerManagerGrantedKinds())
}

// ResourceRequests returns the role and the binding that allow the controller manager of a consumer to deny
// ResourceSlices that no controller sends to their provider.
func (m Manager) ResourceRequests() []Object {
	return m.everywhere(ControllerManagerResourceRequests())
}

// Authentication returns the roles and the binding that allow the controller manager of a provider to admit consumers
// that join with Liqo's protocol, and to renew the certificates of other consumers.
func (m Manager) Authentication() []Object {
	objects := m.everywhere(ControllerManagerAuthentication())
	for _, role := range []Role{RemoteTenant(), RemoteRenewal()} {
		objects = append(objects, role.clusterRole(prefixed(m.Prefix, role.Name), strings.NewReplacer()))
	}
	return objects
}

// Plugins returns the roles and the bindings that allow the controller manager to fetch and store the modules of
// plugins. The namespace must exist.
func (m Manager) Plugins() []Object {
	sources := ControllerManagerPluginSources()
	name := prefixed(m.Prefix, sources.Name)
	return append(m.everywhere(ControllerManagerPlugins()), sources.role(m.Namespace, name, strings.NewReplacer()), roleBinding(m.Namespace, name, "Role", name, m.Subject))
}

// PeeringUsers returns the roles of the users that liqoctl generate peering-user creates. The command itself binds
// them. The namespace must exist.
func (m Manager) PeeringUsers() []Object {
	tenant, installation, none := PeeringUserTenant(), PeeringUserInstallation(), strings.NewReplacer()
	return []Object{tenant.clusterRole(prefixed(m.Prefix, tenant.Name), none), installation.role(m.Namespace, prefixed(m.Prefix, installation.Name), none)}
}

func (m Manager) everywhere(role Role) []Object {
	name := prefixed(m.Prefix, role.Name)
	replace := strings.NewReplacer(TenantRolePlaceholder, prefixed(m.Prefix, RemoteTenant().Name),
		ControlPlaneRolePlaceholder, prefixed(m.Prefix, RemoteControlPlane().Name), RenewalRolePlaceholder, prefixed(m.Prefix, RemoteRenewal().Name),
		GatewayRolePlaceholder, prefixed(m.Prefix, GatewayTenant().Name), GatewayNodesRolePlaceholder, prefixed(m.Prefix, GatewayNodes().Name), CredentialsRolePlaceholder, prefixed(m.Prefix, ControllerManagerCredentials().Name),
		LocalRolePlaceholder, prefixed(m.Prefix, VirtualKubeletLocal().Name))
	return []Object{role.clusterRole(name, replace), clusterRoleBinding(name, name, m.Subject)}
}

func prefixed(prefix, name string) string {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return prefix + "-" + name
}
