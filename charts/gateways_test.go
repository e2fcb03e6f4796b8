// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common/util"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/test/support/short"
	"github.com/refract-project/refract/test/support/testenv"
)

// gatewayValues returns values that enable gateways.
func gatewayValues(t *testing.T) map[string]any {
	t.Helper()
	given := values(t, "pair")
	given["networking"] = map[string]any{
		"addresses": map[string]any{"enabled": true},
		"gateways":  map[string]any{"enabled": true, "image": map[string]any{"name": "registry.example.com/gateway", "version": "1.2.3"}},
	}
	return given
}

// gatewayPods returns the pods of the templates and of the agents, by the names of their objects.
func gatewayPods(t *testing.T, given map[string]any) map[string]corev1.PodSpec {
	t.Helper()
	rendered := objects(t, given)
	pods := map[string]corev1.PodSpec{"agent": get[*appsv1.DaemonSet](t, rendered, "refract-gateway-agent").Spec.Template.Spec}
	for name, spec := range map[string]networking.GatewayTemplateSpec{
		"wireguard-server": get[*networking.WgGatewayServerTemplate](t, rendered, "wireguard-server").Spec,
		"wireguard-client": get[*networking.WgGatewayClientTemplate](t, rendered, "wireguard-client").Spec,
	} {
		assert.Equal(t, networking.ObjectKind{APIVersion: "apps/v1", Kind: "Deployment"}, spec.ObjectKind)
		decoder := json.NewDecoder(bytes.NewReader(spec.Template.Raw))
		decoder.DisallowUnknownFields()
		deployment := &appsv1.Deployment{}
		require.NoError(t, decoder.Decode(deployment))
		assert.Equal(t, int32(2), *deployment.Spec.Replicas)
		pods[name] = deployment.Spec.Template.Spec
	}
	return pods
}

// TestGateways checks the privileges of gateways and agents. Their only capability is NET_ADMIN, and only agents use
// the network of the node.
func TestGateways(t *testing.T) {
	given := gatewayValues(t)
	for name, pod := range gatewayPods(t, given) {
		container := pod.Containers[0]
		security := container.SecurityContext
		assert.Equal(t, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}}, security.Capabilities, name)
		assert.True(t, *security.ReadOnlyRootFilesystem, name)
		assert.False(t, *security.AllowPrivilegeEscalation, name)
		assert.Nil(t, security.Privileged, name)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, name)
		assert.Equal(t, name == "agent", pod.HostNetwork, name)
		assert.Equal(t, "registry.example.com/gateway:1.2.3", container.Image, name)
		for _, volume := range pod.Volumes {
			assert.Equal(t, "/dev/net/tun", volume.HostPath.Path, name)
		}
	}
	rendered := objects(t, given)
	args := get[*appsv1.Deployment](t, rendered, "refract-controller-manager").Spec.Template.Spec.Containers[0].Args
	assert.Contains(t, args, "--enable-gateways")
	for _, role := range []string{"liqo-gateway", "liqo-gateway-nodes", "liqo-gateway-agent", "liqo-controller-manager-gateways"} {
		get[*rbacv1.ClusterRole](t, rendered, role)
	}
	manager := get[*rbacv1.ClusterRole](t, rendered, "liqo-controller-manager-gateways")
	for _, rule := range manager.Rules {
		if rule.Verbs[0] == "bind" {
			assert.Subset(t, []string{"liqo-gateway", "liqo-gateway-nodes"}, rule.ResourceNames)
		}
	}
	assert.Contains(t, args, "--gateway-key-rotation-interval=720h")
	get[*rbacv1.ClusterRole](t, rendered, "liqo-controller-manager-gateway-keys")
	for name, change := range map[string]map[string]any{
		"disabled":         {"networking": map[string]any{"gateways": map[string]any{"keyRotationInterval": "0h"}}},
		"without policies": {"tenants": map[string]any{"admissionPolicies": false}},
	} {
		rendered := objects(t, util.CoalesceTables(change, gatewayValues(t)))
		args := get[*appsv1.Deployment](t, rendered, "refract-controller-manager").Spec.Template.Spec.Containers[0].Args
		assert.Contains(t, args, "--gateway-key-rotation-interval=0", name)
		for _, object := range rendered {
			assert.NotEqual(t, "liqo-controller-manager-gateway-keys", object.GetName(), name)
		}
	}

	given["networking"].(map[string]any)["gateways"].(map[string]any)["wireguard"] = "kernel"
	assert.Empty(t, gatewayPods(t, given)["wireguard-server"].Volumes, "WireGuard in the kernel needs no device")
}

// TestGatewayArguments checks that the command accepts the arguments of the chart.
func TestGatewayArguments(t *testing.T) {
	short.NeedTime(t, "the command to be built")
	bin := t.TempDir()
	require.NoError(t, testenv.BuildCommands(t.Context(), bin, "gateway"))
	given := gatewayValues(t)
	given["homeNames"] = map[string]any{"consumers": []any{map[string]any{"clusterID": "rome"}}, "addresses": true}
	for name, pod := range gatewayPods(t, given) {
		container := pod.Containers[0]
		assert.Equal(t, []string{"/usr/bin/gateway"}, container.Command)
		args := container.Args
		if name != "agent" { // the controller manager puts the command in front
			args = append([]string{"run"}, args...)
		}
		output, err := exec.CommandContext(t.Context(), filepath.Join(bin, "gateway"), append(args, "--help")...).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, output)
	}
}

// TestGatewaysNeedTheirControllers checks that values with which no gateway could run are refused.
func TestGatewaysNeedTheirControllers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(map[string]any)
		text   string
	}{
		"no addresses": {func(v map[string]any) { delete(v["networking"].(map[string]any), "addresses") }, "networking.addresses.enabled"},
		"no image": {func(v map[string]any) {
			delete(v["networking"].(map[string]any)["gateways"].(map[string]any), "image")
		}, "networking.gateways.image.name is required"},
		"beside Liqo": {func(v map[string]any) { v["adoptLiqo"] = true }, "adoptLiqo"},
	} {
		given := gatewayValues(t)
		c.change(given)
		_, err := render(t, given)
		require.ErrorContains(t, err, c.text, name)
	}
}

// TestDeploymentsAreLimitedWithoutOffloading checks that a cluster that runs gateways, but no virtual kubelets, also
// has the policy for the Deployments that the controller manager creates.
func TestDeploymentsAreLimitedWithoutOffloading(t *testing.T) {
	given := gatewayValues(t)
	given["offloading"] = map[string]any{"enabled": false}
	delete(given, "virtualKubelets")
	policy := get[*admissionv1.ValidatingAdmissionPolicy](t, objects(t, given), "refract-controller-manager-deployments")
	assert.Contains(t, policy.Spec.Validations[0].Expression, "false && has(namespaceObject", "no virtual kubelets run")
	get[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects(t, given), "refract-controller-manager-deployments")
}
