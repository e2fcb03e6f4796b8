// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

const (
	// containerName is the name of the container in the template that runs the gateway.
	containerName = "gateway"
	// keysVolume is the volume with the keys, and keysPath the directory where it is mounted. The volume with the second Secret has the
	// same name with a suffix.
	keysVolume          = "keys"
	keysPath            = "/etc/wireguard/keys"
	alternateKeysSuffix = "-alternate"
	// tunnelPort is the name of the UDP port of the tunnel.
	tunnelPort = "wireguard"
	// sliceManager is the manager in a label of the EndpointSlice. Without the label, the EndpointSlice controller of
	// Kubernetes could remove the slice.
	sliceManager = "gateway.refract.io"
	// maxGatewayName is the maximum length of a gateway's name with which the name of its Service is valid.
	maxGatewayName = 63 - len("gw-")
)

// gatewayTemplate is the content of a template: a Deployment, and settings of the Service of a server.
type gatewayTemplate struct {
	appsv1.Deployment
	Service serviceSettings `json:"service"`
}

// serviceSettings are settings of the Service that depend on the cloud.
type serviceSettings struct {
	Annotations       map[string]string `json:"annotations,omitempty"`
	LoadBalancerClass *string           `json:"loadBalancerClass,omitempty"`
}

// parseTemplate returns the content of a template. It is nil if the template is not one of Refract's.
func parseTemplate(spec api.GatewayTemplateSpec) (*gatewayTemplate, error) {
	if spec.ObjectKind != (api.ObjectKind{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"}) {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(spec.Template.Raw))
	decoder.DisallowUnknownFields()
	content := &gatewayTemplate{}
	deployment := &content.Deployment
	if err := decoder.Decode(content); err != nil {
		return nil, fmt.Errorf("spec.template is not a Deployment: %w", err)
	}
	container := findContainer(deployment)
	switch {
	case container == nil:
		return nil, fmt.Errorf("spec.template.spec.template.spec.containers has no container %s", containerName)
	case container.Image == "":
		return nil, fmt.Errorf("the container %s has no image", containerName)
	}
	return content, nil
}

func findContainer(deployment *appsv1.Deployment) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

// forgeDeployment returns a copy of the Deployment of a template, completed for the gateway.
func (c *Controller) forgeDeployment(g gateway, template *appsv1.Deployment) *appsv1.Deployment {
	name := g.object().GetName()
	selector := g.selector()
	made := template.DeepCopy()
	extra := made.ObjectMeta
	made.ObjectMeta = g.metadata(g.objectName())
	made.Labels, made.Annotations = merge(extra.Labels, made.Labels), maps.Clone(extra.Annotations)
	made.Status = appsv1.DeploymentStatus{}
	made.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector}
	pod := &made.Spec.Template
	pod.Labels = merge(pod.Labels, selector, map[string]string{wire.RemoteClusterIDLabel: g.peer()})
	pod.Spec.ServiceAccountName = wire.GatewayServiceAccount
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: selector},
			// Without this key, pods of a former version would count, and both new pods could be on one node.
			MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
		}}
	}
	container := findContainer(made)
	container.Args = append([]string{
		"run", "--name=" + name, "--cluster-id=" + c.options.ClusterID, "--liqo-namespace=" + c.options.Installation,
		"--keys-dir=" + keysPath, "--standby",
	}, container.Args...)
	if container.TerminationMessagePolicy == "" {
		// The Event about a gateway that does not start then has the reason.
		container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	mountKeys(g, &pod.Spec, container)
	for env, path := range map[string]string{
		"NODE_NAME": "spec.nodeName", "POD_IP": "status.podIPs", "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace",
	} {
		container.Env = append(container.Env, corev1.EnvVar{Name: env, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
		}})
	}
	slices.SortStableFunc(container.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	if port := g.port(); port != 0 {
		container.Ports = append(container.Ports, corev1.ContainerPort{Name: tunnelPort, ContainerPort: port, Protocol: corev1.ProtocolUDP})
	}
	return made
}

// mountKeys adds the volumes with the private keys. The Secret with the next keys may not exist yet.
func mountKeys(g gateway, pod *corev1.PodSpec, container *corev1.Container) {
	primary, isGiven := g.primarySecret()
	secrets := map[string]string{"": primary}
	if !isGiven {
		secrets[alternateKeysSuffix] = g.alternateSecret()
		container.Args = slices.Insert(container.Args, 1, "--alternate-keys-dir="+keysPath+alternateKeysSuffix)
	}
	for _, suffix := range slices.Sorted(maps.Keys(secrets)) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: keysVolume + suffix, VolumeSource: corev1.VolumeSource{
			// The spec may name any Secret of the namespace, so only the key of the private key is mounted.
			Secret: &corev1.SecretVolumeSource{SecretName: secrets[suffix], DefaultMode: ptr.To[int32](0o400), Optional: ptr.To(!isGiven),
				Items: []corev1.KeyToPath{{Key: wire.PrivateKeyField, Path: wire.PrivateKeyField}}},
		}})
		mount := corev1.VolumeMount{Name: keysVolume + suffix, MountPath: keysPath + suffix, ReadOnly: true}
		container.VolumeMounts = append(container.VolumeMounts, mount)
	}
}

// merge returns the union of maps. Values of later maps take precedence.
func merge(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, labels := range all {
		maps.Copy(merged, labels)
	}
	return merged
}

// forgeBudget returns the PodDisruptionBudget of the gateway.
func forgeBudget(g gateway, deployment *appsv1.Deployment) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: g.metadata(g.objectName()),
		// With minAvailable, a gateway of one pod would block the drain of its node.
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: deployment.Spec.Selector, MaxUnavailable: ptr.To(intstr.FromInt32(1))},
	}
}

// forgeService returns the Service that the peer connects to. It has no selector: see forgeSlice.
func forgeService(g gateway, settings serviceSettings) *corev1.Service {
	endpoint := g.server.Spec.Endpoint
	port := corev1.ServicePort{
		Name: tunnelPort, Protocol: corev1.ProtocolUDP, Port: endpoint.Port, TargetPort: intstr.FromInt32(endpoint.Port),
		NodePort: ptr.Deref(endpoint.NodePort, 0),
	}
	service := &corev1.Service{
		ObjectMeta: g.metadata(g.objectName()),
		Spec: corev1.ServiceSpec{
			Type: endpoint.ServiceType, Ports: []corev1.ServicePort{port}, LoadBalancerIP: ptr.Deref(endpoint.LoadBalancerIP, ""),
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
		},
	}
	service.Annotations = settings.Annotations
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		service.Spec.LoadBalancerClass = settings.LoadBalancerClass
	}
	return service
}

// forgeSlice returns the EndpointSlice of the Service. The active pod writes its endpoint.
func forgeSlice(g gateway) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  g.metadata(wire.GatewayElection),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: ptr.To(tunnelPort), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(g.port()),
		}},
	}
	slice.Labels = merge(slice.Labels, map[string]string{
		discoveryv1.LabelServiceName: g.objectName(), discoveryv1.LabelManagedBy: sliceManager,
	})
	return slice
}
