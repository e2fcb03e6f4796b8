// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/cmdutil"
)

// Installation contains the common settings of the Deployments of virtual kubelets.
type Installation struct {
	// ClusterID is the ID of this cluster.
	ClusterID string
	// Namespace is the namespace of the installation.
	Namespace string
}

// Name, ports and paths of the container.
const (
	containerName    = "virtual-kubelet"
	kubeletPort      = 10250
	defaultMetrics   = ":5872"
	pluginsMountPath = "/plugins"
)

// Forge returns the Deployment of a virtual kubelet. It is the Deployment of the VkOptionsTemplate, patched with
// spec.template of the VirtualNode. Its arguments are the same as in Liqo, so that the image of either project can be
// used. Flags that only one of the images supports are in spec.extraArgs of the VkOptionsTemplate. The flags of the
// VirtualNode come last and take precedence.
func Forge(vn *offloading.VirtualNode, template *offloading.VkOptionsTemplate, in Installation) (*appsv1.Deployment, error) {
	made := forge(vn, template, in)
	if vn.Spec.Template != nil {
		var err error
		if made, err = override(made, vn.Spec.Template); err != nil {
			return nil, err
		}
	}
	container := containerOf(made)
	if container == nil {
		return nil, fmt.Errorf("spec.template.spec.template.spec.containers has no container %s", containerName)
	}
	if container.Image == "" {
		return nil, fmt.Errorf("spec.containerImage of VkOptionsTemplate %s/%s is empty: set it to the image of the virtual kubelet", template.Namespace, template.Name)
	}
	createNode, checkNetwork := effective(vn, template)
	own := []string{fmt.Sprintf("--create-node=%t", createNode), fmt.Sprintf("--node-check-network=%t", checkNetwork)}
	if secret := vn.Spec.KubeconfigSecretRef; secret != nil {
		own = append(own, "--foreign-kubeconfig-secret-name="+secret.Name)
	}
	container.Args = withFlags(container.Args, own)
	return made, nil
}

// effective returns the effective values of createNode and checkNetwork. The values of the template apply unless the
// VirtualNode sets them.
func effective(vn *offloading.VirtualNode, template *offloading.VkOptionsTemplate) (createNode, checkNetwork bool) {
	createNode, disabled := template.Spec.CreateNode, template.Spec.DisableNetworkCheck
	if vn.Spec.CreateNode != nil {
		createNode = *vn.Spec.CreateNode
	}
	if vn.Spec.DisableNetworkCheck != nil {
		disabled = *vn.Spec.DisableNetworkCheck
	}
	return createNode, !disabled
}

func forge(vn *offloading.VirtualNode, template *offloading.VkOptionsTemplate, in Installation) *appsv1.Deployment {
	selector := map[string]string{wire.ComponentLabel: wire.VirtualKubeletComponent, wire.RemoteClusterIDLabel: vn.Spec.ClusterID.String(), wire.VirtualNodeLabel: vn.Name}
	labels := maps.Clone(template.Spec.ExtraLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, selector)
	replicas := ptr.Deref(template.Spec.Replicas, 1)
	pod := corev1.PodSpec{
		ServiceAccountName: vn.Name,
		ImagePullSecrets:   template.Spec.ImagePullSecrets,
		Tolerations:        template.Spec.Tolerations,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{container(vn, template, in)},
		// The volume holds the serving certificate and the cache of compiled modules.
		Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
	if replicas > 1 {
		pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: selector},
		}}
	}
	if plugins := template.Annotations[wire.PluginsConfigMapAnnotation]; plugins != "" {
		// The volume is not optional, so the pod waits for the ConfigMap. With an empty folder, a new pod would reflect
		// objects without their plugins, and discard the last valid versions of the plugins.
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "plugins", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: plugins}}}})
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "plugins", MountPath: pluginsMountPath, ReadOnly: true})
		pod.Containers[0].Args = append(pod.Containers[0].Args, "--plugin-dir="+pluginsMountPath)
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: vn.Namespace, Name: kubeletName(vn.Name), Labels: maps.Clone(selector)},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			// A new replica must be ready before the old one releases the lease.
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxUnavailable: ptr.To(intstr.FromInt32(0)), MaxSurge: ptr.To(intstr.FromInt32(1))}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: template.Spec.ExtraAnnotations}, Spec: pod},
		},
	}
}

func container(vn *offloading.VirtualNode, template *offloading.VkOptionsTemplate, in Installation) corev1.Container {
	c := corev1.Container{
		Name: containerName, Image: template.Spec.ContainerImage, ImagePullPolicy: template.Spec.PullPolicy,
		Command: []string{"/usr/bin/virtual-kubelet"},
		Args:    arguments(vn, template, in),
		Env: []corev1.EnvVar{
			{Name: "VIRTUALNODE_NAME", Value: vn.Name},
			fromField("POD_NAME", "metadata.name"), fromField("POD_NAMESPACE", "metadata.namespace"), fromField("POD_IP", "status.podIP"),
		},
		Resources: template.Spec.Resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
	}
	if _, limited := c.Resources.Limits[corev1.ResourceMemory]; limited {
		c.Env = append(c.Env, corev1.EnvVar{Name: cmdutil.MemoryLimitVariable, ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}})
	}
	c.Ports = []corev1.ContainerPort{{Name: "kubelet", ContainerPort: int32(kubeletPort)}}
	if port, ok := portOf(":" + valueOf(c.Args, "listen-port")); ok {
		c.Ports[0].ContainerPort = port
	}
	if port, ok := portOf(valueOf(c.Args, "health-probe-address")); ok {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "health", ContainerPort: port})
		c.LivenessProbe, c.ReadinessProbe = probe("/healthz"), probe("/readyz")
		c.ReadinessProbe.PeriodSeconds = readyPeriodSeconds
	}
	if port, ok := portOf(valueOf(c.Args, "metrics-address")); ok && template.Spec.MetricsEnabled {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "metrics", ContainerPort: port})
	}
	return c
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// readyPeriodSeconds is the period of the readiness probe, which delays each rollout.
const readyPeriodSeconds = 2

func probe(path string) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("health")}}}
}

// reflectors lists the kinds whose reflection a template configures, in the order of the arguments. The list must match
// reflection.DefaultKinds, which another process uses. test/kinds_test.go compares both.
var reflectors = []struct {
	kind  string
	typed bool // users choose the policy; all other kinds have fixed rules
}{
	{"pod", false}, {"service", true}, {"endpointslice", false}, {"ingress", true}, {"configmap", true}, {"secret", true}, {"serviceaccount", false},
	{"persistentvolumeclaim", false}, {"event", true}, {"networkpolicy", true}, {"poddisruptionbudget", true},
}

func arguments(vn *offloading.VirtualNode, template *offloading.VkOptionsTemplate, in Installation) []string {
	spec := &template.Spec
	args := []string{
		"--nodename=" + vn.Name, "--node-ip=$(POD_IP)", "--tenant-namespace=" + vn.Namespace, "--liqo-namespace=" + in.Namespace,
		"--home-cluster-id=" + in.ClusterID, "--foreign-cluster-id=" + vn.Spec.ClusterID.String(),
	}
	for _, r := range reflectors {
		config, ok := spec.ReflectorsConfig[r.kind]
		if !ok {
			continue
		}
		args = append(args, fmt.Sprintf("--%s-reflection-workers=%d", r.kind, config.NumWorkers))
		if r.typed && (config.Type == offloading.DenyList || config.Type == offloading.AllowList) {
			args = append(args, fmt.Sprintf("--%s-reflection-type=%s", r.kind, config.Type))
		}
	}
	args = append(args, classes(vn)...)
	if vn.Annotations[wire.AddressesAnnotation] == "false" {
		args = append(args, "--disable-ip-reflection")
	}
	if ranges := vn.Annotations[wire.RangesAnnotation]; ranges != "" {
		args = append(args, "--foreign-cidrs="+ranges)
	}
	if len(spec.NodeExtraAnnotations) > 0 {
		args = append(args, "--node-extra-annotations="+joined(spec.NodeExtraAnnotations))
	}
	if len(spec.NodeExtraLabels) > 0 {
		args = append(args, "--node-extra-labels="+joined(spec.NodeExtraLabels))
	}
	if spec.MetricsEnabled {
		address := spec.MetricsAddress
		if address == "" {
			address = defaultMetrics
		}
		args = append(args, "--metrics-enabled", "--metrics-address="+address)
	}
	return append(args, spec.ExtraArgs...)
}

// classes returns the flags for the classes that the provider offers.
func classes(vn *offloading.VirtualNode) (args []string) {
	storage := chosen(vn.Spec.StorageClasses, func(c offloading.StorageType) (string, bool) { return c.StorageClassName, c.Default })
	ingress := chosen(vn.Spec.IngressClasses, func(c offloading.IngressType) (string, bool) { return c.IngressClassName, c.Default })
	balancer := chosen(vn.Spec.LoadBalancerClasses, func(c offloading.LoadBalancerType) (string, bool) { return c.LoadBalancerClassName, c.Default })
	if storage != "" {
		args = append(args, "--enable-storage", "--remote-real-storage-class-name="+storage)
	}
	if ingress != "" {
		args = append(args, "--enable-ingress", "--remote-real-ingress-class-name="+ingress)
	}
	if balancer != "" {
		args = append(args, "--enable-load-balancer", "--remote-real-load-balancer-class-name="+balancer)
	}
	return args
}

// chosen returns the name of the default class in the list. If there is no default, it returns the first name, or an
// empty string if the list is empty.
func chosen[T any](list []T, describe func(T) (name string, byDefault bool)) (first string) {
	for _, class := range list {
		name, byDefault := describe(class)
		if byDefault {
			return name
		}
		if first == "" {
			first = name
		}
	}
	return first
}

func joined(values map[string]string) string {
	pairs := make([]string, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, key+"="+values[key])
	}
	return strings.Join(pairs, ",")
}

// valueOf returns the last value of a flag.
func valueOf(args []string, flag string) (value string) {
	for _, arg := range args {
		if text, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			value = text
		}
	}
	return value
}

// withFlags returns args with the given flags added. Other values of the same flags are removed.
func withFlags(args, flags []string) []string {
	kept := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, name+"=") })
	})
	return append(kept, flags...)
}

func portOf(address string) (int32, bool) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, false
	}
	port, err := strconv.ParseUint(text, 10, 16)
	return int32(port), err == nil && port > 0
}

func containerOf(deployment *appsv1.Deployment) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	for i := range containers {
		if containers[i].Name == containerName {
			return &containers[i]
		}
	}
	return nil
}

// override merges spec.template of the VirtualNode, which was written by users or Liqo's webhook, into the Deployment.
// The name, namespace and selector are not changed.
func override(made *appsv1.Deployment, with *offloading.DeploymentTemplate) (*appsv1.Deployment, error) {
	original, err := json.Marshal(made)
	if err != nil {
		return nil, fmt.Errorf("encoding the Deployment, %w", err)
	}
	text, err := json.Marshal(with)
	if err != nil {
		return nil, fmt.Errorf("encoding spec.template, %w", err)
	}
	var patch map[string]any
	if err := json.Unmarshal(text, &patch); err != nil {
		return nil, fmt.Errorf("decoding spec.template, %w", err)
	}
	withoutNulls(patch) // a null in a merge patch would delete the field
	if text, err = json.Marshal(patch); err != nil {
		return nil, fmt.Errorf("encoding spec.template, %w", err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, text, appsv1.Deployment{})
	if err != nil {
		return nil, fmt.Errorf("merging spec.template, %w", err)
	}
	next := &appsv1.Deployment{}
	if err := json.Unmarshal(merged, next); err != nil {
		return nil, fmt.Errorf("decoding the Deployment with spec.template, %w", err)
	}
	next.Namespace, next.Name, next.Spec.Selector = made.Namespace, made.Name, made.Spec.Selector
	for key, value := range made.Spec.Selector.MatchLabels {
		next.Labels[key], next.Spec.Template.Labels[key] = value, value
	}
	return next, nil
}

func withoutNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, entry := range v {
			if entry == nil {
				delete(v, key)
				continue
			}
			withoutNulls(entry)
		}
	case []any:
		for _, entry := range v {
			withoutNulls(entry)
		}
	}
}

// effectivePatch returns the offloadingPatch of the VirtualNode, plus the keys that the template excludes from
// reflection.
func effectivePatch(vn *offloading.VirtualNode, template *offloading.VkOptionsTemplate) *offloading.OffloadingPatch {
	patch := &offloading.OffloadingPatch{}
	if vn.Spec.OffloadingPatch != nil {
		patch = vn.Spec.OffloadingPatch.DeepCopy()
	}
	patch.LabelsNotReflected = union(template.Spec.LabelsNotReflected, patch.LabelsNotReflected)
	patch.AnnotationsNotReflected = union(template.Spec.AnnotationsNotReflected, patch.AnnotationsNotReflected)
	return patch
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
