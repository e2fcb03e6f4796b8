// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	rbacv1 "k8s.io/api/rbac/v1"
)

// consumerPermissions lists all permissions of another cluster in this one: for each role of a consumer and of its
// users, the resources with the verbs and, if the rule is restricted to names, the names of the objects. A kind that is
// added here needs admission policies, limits on its number and size, and an attack in test/hostile.
const consumerPermissions = `
liqo-virtual-kubelet-remote in a namespace of the consumer:
	configmaps: create delete get list patch watch
	events: get list watch
	ingresses.networking.k8s.io: create delete get list patch watch
	persistentvolumeclaims: create delete get list patch watch
	pods: delete get list watch
	pods.metrics.k8s.io: list
	pods/attach: create get
	pods/exec: create get
	pods/log: get
	pods/portforward: create get
	secrets: create delete get list patch update watch
	services: create delete get list patch watch
	shadowendpointslices.offloading.liqo.io: create delete get list update watch
	shadowpods.offloading.liqo.io: create delete get list update watch
liqo-remote-network-policies in a namespace of the consumer:
	networkpolicies.networking.k8s.io: create delete get list patch watch
liqo-remote-disruption-budgets in a namespace of the consumer:
	poddisruptionbudgets.policy: create delete get list patch watch
liqo-virtual-kubelet-remote-clusterwide in the cluster:
	/livez: get
	/readyz: get
	/version: get
liqo-remote-controlplane in a namespace of the consumer:
	leases.coordination.k8s.io: create
	leases.coordination.k8s.io refract-heartbeat: get patch
	namespacemaps.offloading.liqo.io: create delete get list patch watch
	quotas.offloading.liqo.io: get list
	resourceslices.authentication.liqo.io: get list watch
	serviceaccounts/token refract-consumer: create
liqo-remote-network in a namespace of the consumer:
	configurations.networking.liqo.io: create delete get list patch
	gatewayservers.networking.liqo.io: get list
	publickeies.networking.liqo.io: create delete get list patch
liqo-remote-tenant in a namespace of the consumer:
	leases.coordination.k8s.io: create
	leases.coordination.k8s.io refract-heartbeat: get patch
	namespacemaps.offloading.liqo.io: create delete get list patch update watch
	quotas.offloading.liqo.io: get list
	renews.authentication.liqo.io: create delete get list patch update watch
	resourceslices.authentication.liqo.io: create delete get list patch update watch
	serviceaccounts/token refract-consumer: create
liqo-remote-renewal in a namespace of the consumer:
	renews.authentication.liqo.io: create
	renews.authentication.liqo.io refract-consumer: delete get
liqo-peering-user-tenant-ns in a namespace of the consumer:
	namespaces: get
	secrets: create delete get list
	tenants.authentication.liqo.io: create delete get list update
liqo-peering-user-liqo-ns in one namespace:
	configmaps: get list watch
liqo-virtual-kubelet-remote for a kind that the provider accepts:
	RESOURCE.GROUP: create delete get list patch watch
liqo-virtual-kubelet-remote-clusterwide for a consumer that may install CRDs:
	customresourcedefinitions.apiextensions.k8s.io: create get
`

// kubeletPermissions lists all permissions of a virtual kubelet, and thus of a provider that has compromised it, in the
// cluster of its pods.
const kubeletPermissions = `
liqo-virtual-kubelet-local in the cluster:
	certificatesigningrequests.certificates.k8s.io: create get list watch
	customresourcedefinitions.apiextensions.k8s.io: get list watch
	events: create patch
	foreignclusters.core.liqo.io: get list watch
	ips.ipam.liqo.io: get list watch
	nodes: create get list watch
	persistentvolumes: create delete get list patch watch
	pluginmodules.plugins.refract.io: get
	pluginrevisions.plugins.refract.io: get list watch
	pods: delete get list watch
	pods/status: patch
	reflectedresources.plugins.refract.io: get list watch
	reflectedresources.plugins.refract.io/status: patch
	reflectionplugins.plugins.refract.io: get list watch
	storageclasses.storage.k8s.io: get list watch
	subjectaccessreviews.authorization.k8s.io: create
	tokenreviews.authentication.k8s.io: create
	virtualkubelets.plugins.refract.io: run
	virtualnodes.offloading.liqo.io: list
liqo-virtual-kubelet-plugins in the cluster:
	namespaces: get list watch
	pluginrevisions.plugins.refract.io/status: patch
liqo-virtual-kubelet-extended in an offloaded namespace:
	configmaps: get list watch
	endpointslices.discovery.k8s.io: get list watch
	events: delete get list
	ingresses.networking.k8s.io: get list watch
	ingresses.networking.k8s.io/status: patch
	networkpolicies.networking.k8s.io: get list watch
	persistentvolumeclaims: get list patch watch
	persistentvolumeclaims/status: patch
	poddisruptionbudgets.policy: get list watch
	secrets: get list watch
	services: get list watch
	services/status: patch
liqo-virtual-kubelet-tokens in an offloaded namespace:
	serviceaccounts/token: create
liqo-virtual-kubelet-node in the cluster:
	nodes $(NODE_NAME): patch
	nodes/status $(NODE_NAME): patch
liqo-virtual-kubelet-tenant in one namespace:
	leases.coordination.k8s.io: create
	leases.coordination.k8s.io $(NODE_NAME): get update
	leases.coordination.k8s.io virtual-kubelet-leader-election: get update
	namespacemaps.offloading.liqo.io: get list watch
	secrets $(KUBECONFIG_SECRET): get list watch
	virtualnodes.offloading.liqo.io: get list watch
	virtualnodes.offloading.liqo.io/status $(NODE_NAME): patch
liqo-virtual-kubelet-lease in one namespace:
	leases.coordination.k8s.io: create
	leases.coordination.k8s.io $(NODE_NAME): get update
liqo-virtual-kubelet-authentication in one namespace:
	configmaps extension-apiserver-authentication: get list watch
`

// gatewayPermissions lists all permissions of the gateway of a peering and of the agents on nodes. A gateway receives
// packets from another cluster.
const gatewayPermissions = `
liqo-gateway in the tenant namespace of the peer:
	configurations.networking.liqo.io: get list watch
	connections.networking.liqo.io: create get list watch
	connections.networking.liqo.io/status: patch
	endpointslices.discovery.k8s.io gateway: get list patch watch
	events: create patch
	gatewayclients.networking.liqo.io: get list watch
	gatewayclients.networking.liqo.io/status: patch
	gatewayservers.networking.liqo.io: get list watch
	gatewayservers.networking.liqo.io/status: patch
	leases.coordination.k8s.io: create
	leases.coordination.k8s.io gateway: get list update watch
	publickeies.networking.liqo.io: get list patch watch
liqo-gateway-nodes in the cluster:
	ips.ipam.liqo.io: get list watch
	nodes: get list watch
liqo-gateway-pods in the cluster:
	pods: get list watch
liqo-gateway-agent in the cluster:
	configurations.networking.liqo.io: get list watch
	gatewayclients.networking.liqo.io: get list watch
	gatewayservers.networking.liqo.io: get list watch
liqo-gateway-agent-addresses in the cluster:
	endpointslices.discovery.k8s.io: get list watch
	namespaces: get list watch
	pods: get list watch
	services: get list watch
`

// homeNamesPermissions is all that the resolver of a consumer's names may do, which receives packets of the consumer's pods, and what the
// controller manager may do in addition where there is one.
const homeNamesPermissions = `
liqo-controller-manager-home-names in the tenant namespace of the peer:
	services refract-home-names: get
liqo-home-names in the tenant namespace of the peer:
	namespacemaps.offloading.liqo.io: get list watch
liqo-home-names-addresses in the cluster:
	pods: get list watch
	services: get list watch
`

// TestPermissionsOfConsumers compares all roles that are granted to another cluster or its users with
// consumerPermissions. These are all roles except the roles of this cluster's own processes.
func TestPermissionsOfConsumers(t *testing.T) {
	var all strings.Builder
	for _, role := range Roles() {
		if !isOfKubelet(role) && !isOfGateway(role) && !isOfHomeNames(role) && !strings.HasPrefix(role.Name, "controller-manager") {
			fmt.Fprintf(&all, "\n%s %s:%s", role.Named(""), scopes[role.Scope], tableOf(role))
		}
	}
	more := ReflectedRemote("GROUP", "RESOURCE")
	fmt.Fprintf(&all, "\n%s for a kind that the provider accepts:%s", more.Named(""), tableOf(more))
	definitions := DefinitionsRemote()
	fmt.Fprintf(&all, "\n%s for a consumer that may install CRDs:%s", definitions.Named(""), tableOf(definitions))
	assert.Equal(t, consumerPermissions, all.String()+"\n")
}

// TestPermissionsOfVirtualKubelets compares the roles of virtual kubelets with kubeletPermissions.
func TestPermissionsOfVirtualKubelets(t *testing.T) {
	var all strings.Builder
	for _, role := range Roles() {
		if isOfKubelet(role) {
			fmt.Fprintf(&all, "\n%s %s:%s", role.Named(""), scopes[role.Scope], tableOf(role))
		}
	}
	assert.Equal(t, kubeletPermissions, all.String()+"\n")
}

func isOfKubelet(role Role) bool {
	return strings.HasPrefix(role.Name, "virtual-kubelet-") && !strings.HasPrefix(role.Name, VirtualKubeletRemote().Name)
}

// TestPermissionsOfGateways compares the roles of gateways and agents with gatewayPermissions.
func TestPermissionsOfGateways(t *testing.T) {
	var all strings.Builder
	for _, role := range Roles() {
		if isOfGateway(role) {
			fmt.Fprintf(&all, "\n%s %s:%s", role.Named(""), scopes[role.Scope], tableOf(role))
		}
	}
	assert.Equal(t, gatewayPermissions, all.String()+"\n")
}

// TestPermissionsOfHomeNames compares the roles around the resolvers of consumers' names with homeNamesPermissions.
func TestPermissionsOfHomeNames(t *testing.T) {
	var all strings.Builder
	for _, role := range Roles() {
		if isOfHomeNames(role) {
			fmt.Fprintf(&all, "\n%s %s:%s", role.Named(""), scopes[role.Scope], tableOf(role))
		}
	}
	assert.Equal(t, homeNamesPermissions, all.String()+"\n")
}

func isOfHomeNames(role Role) bool { return strings.Contains(role.Name, "home-names") }

func isOfGateway(role Role) bool {
	return role.Name == "gateway" || strings.HasPrefix(role.Name, "gateway-")
}

// scopes describes where roles apply.
var scopes = map[Scope]string{
	ConsumerScope: "in a namespace of the consumer", ExtendedScope: "in an offloaded namespace", ClusterScope: "in the cluster", NamespaceScope: "in one namespace", TenantScope: "in the tenant namespace of the peer",
}

// tableOf returns a line for each resource of the role, with the verbs. If a rule is restricted to names, the line
// contains them.
func tableOf(role Role) string {
	verbs := map[string][]string{}
	for _, rule := range role.Rules {
		for _, resource := range resourcesOf(rule.PolicyRule) {
			verbs[resource] = append(verbs[resource], rule.Verbs...)
		}
	}
	var lines strings.Builder
	for _, resource := range slices.Sorted(maps.Keys(verbs)) {
		slices.Sort(verbs[resource])
		fmt.Fprintf(&lines, "\n\t%s: %s", resource, strings.Join(slices.Compact(verbs[resource]), " "))
	}
	return lines.String()
}

// resourcesOf returns RESOURCE.GROUP or RESOURCE.GROUP NAME for each resource of a rule, and its paths.
func resourcesOf(rule rbacv1.PolicyRule) []string {
	all := slices.Clone(rule.NonResourceURLs)
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			kind, subresource, isSub := strings.Cut(resource, "/")
			full := strings.TrimSuffix(kind+"."+group, ".")
			if isSub {
				full += "/" + subresource
			}
			for _, name := range rule.ResourceNames {
				all = append(all, full+" "+name)
			}
			if len(rule.ResourceNames) == 0 {
				all = append(all, full)
			}
		}
	}
	return all
}
