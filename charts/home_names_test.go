// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/short"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestHomeNames checks what the chart installs for a consumer whose pods resolve the names of their own cluster: its
// privileges, and who may reach it.
func TestHomeNames(t *testing.T) {
	given := values(t, "pair")
	given["homeNames"] = map[string]any{"consumers": []any{map[string]any{"clusterID": "rome", "clusterDomain": "rome.example"}}}
	rendered := objects(t, given)

	manager := get[*appsv1.Deployment](t, rendered, "refract-controller-manager").Spec.Template.Spec.Containers[0]
	assert.Contains(t, manager.Args, "--home-domain-of=rome=rome.example")

	deployment := get[*appsv1.Deployment](t, rendered, wire.HomeNamesService)
	assert.Equal(t, "liqo-tenant-rome", deployment.Namespace)
	assert.Equal(t, int32(2), *deployment.Spec.Replicas)
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	assert.Equal(t, manager.Image, container.Image)
	assert.Subset(t, container.Args, []string{"home-names", "--consumer=rome", "--home-domain=rome.example"})
	assert.Equal(t, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, container.SecurityContext.Capabilities)
	assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	assert.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.Equal(t, []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "53"}}, pod.SecurityContext.Sysctls)
	assert.Equal(t, corev1.DNSClusterFirst, pod.DNSPolicy, "the resolver must not query itself")

	service := get[*corev1.Service](t, rendered, wire.HomeNamesService)
	assert.Equal(t, deployment.Spec.Selector.MatchLabels, service.Spec.Selector)
	require.Len(t, service.Spec.Ports, 2)
	for _, port := range service.Spec.Ports {
		assert.Equal(t, int32(53), port.Port)
	}

	policy := get[*networkingv1.NetworkPolicy](t, rendered, wire.HomeNamesService).Spec
	assert.Equal(t, deployment.Spec.Selector.MatchLabels, policy.PodSelector.MatchLabels)
	require.Len(t, policy.Ingress, 2)
	assert.Equal(t, map[string]string{wire.RemoteClusterIDLabel: "rome"}, policy.Ingress[0].From[0].NamespaceSelector.MatchLabels)
	for _, rule := range policy.Ingress[1:] {
		for _, port := range rule.Ports {
			assert.NotContains(t, port.Port.String(), "dns", "from everywhere")
		}
	}

	for role, want := range map[string]rbacv1.Subject{
		"liqo-home-names":                    {Kind: "ServiceAccount", Namespace: "liqo-tenant-rome", Name: pod.ServiceAccountName},
		"liqo-controller-manager-home-names": {Kind: "ServiceAccount", Namespace: "liqo", Name: "refract-controller-manager"},
	} {
		assert.Equal(t, "liqo-tenant-rome", get[*rbacv1.Role](t, rendered, role).Namespace)
		subject := get[*rbacv1.RoleBinding](t, rendered, role).Subjects[0]
		assert.Equal(t, want.Name, subject.Name)
		if role == "liqo-home-names" {
			assert.Equal(t, want, subject)
		}
	}
}

// TestHomeNamesArguments checks that the command knows the arguments.
func TestHomeNamesArguments(t *testing.T) {
	short.NeedTime(t, "the command to be built")
	bin := t.TempDir()
	require.NoError(t, testenv.BuildCommands(t.Context(), bin, "controller-manager"))
	given := gatewayValues(t)
	given["homeNames"] = map[string]any{"consumers": []any{map[string]any{"clusterID": "rome"}}, "addresses": true}
	rendered := objects(t, given)
	for _, name := range []string{wire.HomeNamesService, "refract-controller-manager"} {
		args := get[*appsv1.Deployment](t, rendered, name).Spec.Template.Spec.Containers[0].Args
		output, err := exec.CommandContext(t.Context(), filepath.Join(bin, "controller-manager"), append(args, "--help")...).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, output)
	}
}

// TestHomeNamesAreOffByDefault checks that the values of the resolvers alone change nothing.
func TestHomeNamesAreOffByDefault(t *testing.T) {
	for _, object := range objects(t, values(t, "pair")) {
		assert.NotContains(t, object.GetName(), "home-names")
		if deployment, ok := object.(*appsv1.Deployment); ok {
			for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
				assert.NotContains(t, arg, "home-domain")
			}
		}
	}
}

// TestHomeAddresses checks that agents and resolvers get the permissions and arguments for the cluster IPs of consumers with the value
// homeNames.addresses only, and that it needs agents and consumers.
func TestHomeAddresses(t *testing.T) {
	given := gatewayValues(t)
	consumers := []any{map[string]any{"clusterID": "rome"}, map[string]any{"clusterID": "paris", "namespace": "tenant-paris"}}
	install := func(homeNames map[string]any) []client.Object {
		given["homeNames"] = homeNames
		return objects(t, given)
	}
	agentArgs := func(rendered []client.Object) []string {
		return get[*appsv1.DaemonSet](t, rendered, "refract-gateway-agent").Spec.Template.Spec.Containers[0].Args
	}
	resolversWith := func(rendered []client.Object) (count int) {
		for _, object := range rendered {
			if d, ok := object.(*appsv1.Deployment); ok && slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--home-addresses") {
				count++
			}
		}
		return count
	}
	rendered := install(map[string]any{"consumers": consumers, "addresses": true})
	assert.Contains(t, agentArgs(rendered), "--home-addresses-of=rome,paris")
	assert.Equal(t, 2, resolversWith(rendered))
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "liqo", Name: "refract-gateway-agent"}},
		get[*rbacv1.ClusterRoleBinding](t, rendered, "liqo-gateway-agent-addresses").Subjects)
	assert.Equal(t, rbac.GatewayAgentAddresses().PolicyRules(strings.NewReplacer()), get[*rbacv1.ClusterRole](t, rendered,
		"liqo-gateway-agent-addresses").Rules)
	assert.Equal(t, []rbacv1.Subject{
		{Kind: "ServiceAccount", Namespace: "liqo-tenant-rome", Name: wire.HomeNamesService},
		{Kind: "ServiceAccount", Namespace: "tenant-paris", Name: wire.HomeNamesService},
	}, get[*rbacv1.ClusterRoleBinding](t, rendered, "liqo-home-names-addresses").Subjects)
	assert.Equal(t, rbac.HomeNamesAddresses().PolicyRules(strings.NewReplacer()), get[*rbacv1.ClusterRole](t, rendered,
		"liqo-home-names-addresses").Rules)

	for name, homeNames := range map[string]map[string]any{
		"without consumers": {"addresses": true}, "disabled": {"consumers": consumers, "addresses": false},
		"by default": {"consumers": consumers},
	} {
		rendered := install(homeNames)
		for _, arg := range agentArgs(rendered) {
			assert.NotContains(t, arg, "home-addresses", name)
		}
		for _, object := range rendered {
			assert.NotContains(t, []string{"liqo-gateway-agent-addresses", "liqo-home-names-addresses"}, object.GetName(), name)
		}
		assert.Zero(t, resolversWith(rendered), name)
	}
	without := values(t, "pair")
	without["homeNames"] = map[string]any{"consumers": consumers, "addresses": true}
	_, err := render(t, without)
	assert.ErrorContains(t, err, "homeNames.addresses needs networking.gateways.enabled")
}
