// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

func given() (*offloading.VirtualNode, *offloading.VkOptionsTemplate) {
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: offloading.VirtualNodeSpec{
		ClusterID: "milan", KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig"},
		StorageClasses: []offloading.StorageType{{StorageClassName: "slow"}, {StorageClassName: "fast", Default: true}},
		IngressClasses: []offloading.IngressType{{IngressClassName: "nginx"}, {IngressClassName: "other"}},
	}}
	template := &offloading.VkOptionsTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "default", Annotations: map[string]string{wire.PluginsConfigMapAnnotation: "modules"}},
		Spec: offloading.VkOptionsTemplateSpec{
			ContainerImage: "registry.example/vk:1", CreateNode: true, MetricsEnabled: true, Replicas: ptr.To[int32](2),
			ReflectorsConfig: map[string]offloading.ReflectorConfig{
				"pod": {NumWorkers: 5, Type: offloading.CustomLiqo}, "secret": {NumWorkers: 2, Type: offloading.AllowList}},
			NodeExtraLabels: map[string]string{"zone": "eu", "tier": "gold"},
			ExtraArgs:       []string{"--listen-port=10260", "--health-probe-address=:8081", "--create-node=false"},
			ExtraLabels:     map[string]string{"team": "shop", wire.VirtualNodeLabel: "forged"},
		},
	}
	return vn, template
}

var installation = Installation{ClusterID: "rome", Namespace: "liqo"}

func TestADeploymentIsMadeOfTemplateAndVirtualNode(t *testing.T) {
	vn, template := given()
	made, err := Forge(vn, template, installation)
	require.NoError(t, err)
	c := made.Spec.Template.Spec.Containers[0]
	assert.Equal(t, []string{
		"--nodename=milan", "--node-ip=$(POD_IP)", "--tenant-namespace=liqo-tenant-milan", "--liqo-namespace=liqo", "--home-cluster-id=rome", "--foreign-cluster-id=milan",
		"--pod-reflection-workers=5", "--secret-reflection-workers=2", "--secret-reflection-type=AllowList",
		"--enable-storage", "--remote-real-storage-class-name=fast", "--enable-ingress", "--remote-real-ingress-class-name=nginx",
		"--node-extra-labels=tier=gold,zone=eu", "--metrics-enabled", "--metrics-address=:5872", "--listen-port=10260", "--health-probe-address=:8081", "--plugin-dir=/plugins",
		"--create-node=true", "--node-check-network=true", "--foreign-kubeconfig-secret-name=kubeconfig",
	}, c.Args)
	assert.Equal(t, []corev1.ContainerPort{{Name: "kubelet", ContainerPort: 10260}, {Name: "health", ContainerPort: 8081}, {Name: "metrics", ContainerPort: 5872}}, c.Ports)
	assert.NotNil(t, c.ReadinessProbe)
	assert.Equal(t, "vk-milan", made.Name)
	assert.Equal(t, map[string]string{"team": "shop", wire.VirtualNodeLabel: "milan", wire.ComponentLabel: wire.VirtualKubeletComponent, wire.RemoteClusterIDLabel: "milan"}, made.Spec.Template.Labels)
	assert.Equal(t, "milan", made.Spec.Template.Spec.ServiceAccountName)
	require.Len(t, made.Spec.Template.Spec.Volumes, 2)
	assert.Equal(t, corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "modules"}},
		*made.Spec.Template.Spec.Volumes[1].ConfigMap, "a pod must not start without its plugins")
	assert.Len(t, made.Spec.Template.Spec.TopologySpreadConstraints, 1)

	vn.Spec.CreateNode, vn.Spec.DisableNetworkCheck = ptr.To(false), ptr.To(true)
	made, err = Forge(vn, template, installation)
	require.NoError(t, err)
	assert.Subset(t, made.Spec.Template.Spec.Containers[0].Args, []string{"--create-node=false", "--node-check-network=false"})

	vn.Annotations = map[string]string{wire.AddressesAnnotation: "false", wire.RangesAnnotation: "10.1.0.0/16,10.2.0.0/16"}
	made, err = Forge(vn, template, installation)
	require.NoError(t, err)
	assert.Subset(t, made.Spec.Template.Spec.Containers[0].Args, []string{"--disable-ip-reflection", "--foreign-cidrs=10.1.0.0/16,10.2.0.0/16"})
}

// TestAVirtualNodeOverridesItsTemplate checks that spec.template of a VirtualNode overrides its Deployment, except for
// the name, namespace and selector.
func TestAVirtualNodeOverridesItsTemplate(t *testing.T) {
	vn, template := given()
	vn.Spec.Template = &offloading.DeploymentTemplate{
		Metadata: metav1.ObjectMeta{Name: "another", Labels: map[string]string{"team": "platform"}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "another"}},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"disk": "ssd"},
				Containers:   []corev1.Container{{Name: containerName, Image: "registry.example/vk:2", Args: []string{"--nodename=milan", "--create-node=false"}}},
			}},
		},
	}
	made, err := Forge(vn, template, installation)
	require.NoError(t, err)
	c := made.Spec.Template.Spec.Containers[0]
	assert.Equal(t, "registry.example/vk:2", c.Image)
	assert.Equal(t, []string{"--nodename=milan", "--create-node=true", "--node-check-network=true", "--foreign-kubeconfig-secret-name=kubeconfig"}, c.Args)
	assert.Equal(t, "vk-milan", made.Name)
	assert.Equal(t, "platform", made.Labels["team"])
	assert.Equal(t, "milan", made.Spec.Selector.MatchLabels[wire.VirtualNodeLabel])
	assert.Equal(t, map[string]string{"disk": "ssd"}, made.Spec.Template.Spec.NodeSelector)
	assert.Equal(t, int32(2), *made.Spec.Replicas)
	assert.NotNil(t, c.SecurityContext)
}

func TestATemplateNeedsAnImage(t *testing.T) {
	vn, template := given()
	template.Spec.ContainerImage = ""
	_, err := Forge(vn, template, installation)
	assert.ErrorContains(t, err, "spec.containerImage of VkOptionsTemplate liqo/default is empty")
}

func TestKeysThatStayAreThoseOfBoth(t *testing.T) {
	vn, template := given()
	template.Spec.LabelsNotReflected = []string{"b", "a"}
	vn.Spec.OffloadingPatch = &offloading.OffloadingPatch{LabelsNotReflected: []string{"c", "a"}, NodeSelector: map[string]string{"disk": "ssd"}}
	assert.Equal(t, &offloading.OffloadingPatch{LabelsNotReflected: []string{"a", "b", "c"}, NodeSelector: map[string]string{"disk": "ssd"}}, effectivePatch(vn, template))
}
