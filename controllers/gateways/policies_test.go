// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
)

// TestPolicies checks that the policies of the chart deny harmful objects that a compromised controller manager could
// create under the name of a gateway.
func TestPolicies(t *testing.T) {
	start(t)
	namespace, other := tenant(t, "milan"), rome.Namespace(t)
	rome.Create(t, serverOf(namespace, "milan", corev1.ServiceTypeClusterIP))
	access, err := rome.ConfigFor(controllertest.ManagerUser)
	require.NoError(t, err)
	manager, err := client.New(access, client.Options{Scheme: rome.Client.Scheme()})
	require.NoError(t, err)
	labels := map[string]string{wire.ComponentLabel: wire.GatewayComponent}
	metaIn := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	}
	good := awaitDeployment(t, namespace, "milan")
	good.ObjectMeta = metaIn(namespace, "gw-turin")
	deployment := func(change func(*appsv1.Deployment)) client.Object {
		changed := good.DeepCopy()
		change(changed)
		return changed
	}
	volume := func(source corev1.VolumeSource) client.Object {
		return deployment(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Volumes = append(d.Spec.Template.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: source})
		})
	}
	pod := func(change func(*corev1.PodSpec)) client.Object {
		return deployment(func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec) })
	}
	binding := func(namespace, role string, kind string, subject rbacv1.Subject) client.Object {
		return &rbacv1.RoleBinding{ObjectMeta: metaIn(namespace, "gw"), Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}}
	}
	account := rbac.ServiceAccount(namespace, "refract-gateway")
	privileged := true
	for name, object := range map[string]client.Object{
		"deployment":      good.DeepCopy(),
		"secret":          &corev1.Secret{ObjectMeta: metaIn(namespace, "gw-turin")},
		"service account": &corev1.ServiceAccount{ObjectMeta: metaIn(namespace, "refract-gateway")},
		"budget":          &policyv1.PodDisruptionBudget{ObjectMeta: metaIn(namespace, "gw-turin")},
		"service": &corev1.Service{ObjectMeta: metaIn(namespace, "gw-turin"), Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: 51840, Protocol: corev1.ProtocolUDP}},
		}},
		"binding": binding(namespace, "liqo-gateway", "ClusterRole", account),
	} {
		require.NoError(t, client.IgnoreAlreadyExists(manager.Create(t.Context(), object, client.DryRunAll)), name)
	}
	for name, c := range map[string]struct {
		object client.Object
		text   string
	}{
		"another namespace": {deployment(func(d *appsv1.Deployment) { d.Namespace = other }), "only in tenant namespaces"},
		"another account":   {pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "milan" }), "as the ServiceAccount refract-gateway"},
		"another name":      {deployment(func(d *appsv1.Deployment) { d.Name = "vk-milan" }), "only in tenant namespaces"},
		"host network":      {pod(func(p *corev1.PodSpec) { p.HostNetwork = true }), "do not use the network"},
		"host processes":    {pod(func(p *corev1.PodSpec) { p.HostPID = true }), "do not use the network"},
		"privileged": {pod(func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &privileged}
		}), "capability NET_ADMIN"},
		"privileged init container": {pod(func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "init", Image: "x", SecurityContext: &corev1.SecurityContext{Privileged: &privileged}}}
		}), "capability NET_ADMIN"},
		"capability": {pod(func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
		}), "capability NET_ADMIN"},
		"escalation": {pod(func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil }), "gain no privileges"},
		"Secret in the environment": {pod(func(p *corev1.PodSpec) {
			p.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gw-milan"}}}}
		}), "in their environment"},
		"Secret in a variable": {pod(func(p *corev1.PodSpec) {
			p.Containers[0].Env = append(p.Containers[0].Env, corev1.EnvVar{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "gw-milan"}, Key: "privateKey",
			}}})
		}), "in their environment"},
		"port of the node": {pod(func(p *corev1.PodSpec) { p.Containers[0].Ports[0].HostPort = 80 }), "no ports of their node"},
		"chosen node":      {pod(func(p *corev1.PodSpec) { p.NodeName = "worker-1" }), "are scheduled"},
		"path of the host": {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}), "and nothing else"},
		"another Secret":   {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "kubeconfig"}}), "and nothing else"},
		"whole Secret": {pod(func(p *corev1.PodSpec) {
			for i := range p.Volumes {
				if p.Volumes[i].Secret != nil {
					p.Volumes[i].Secret.Items = nil
				}
			}
		}), "and nothing else"},
		"unlabelled Deployment": {deployment(func(d *appsv1.Deployment) { d.Labels = nil }), "only virtual kubelets"},
		"Secret elsewhere":      {&corev1.Secret{ObjectMeta: metaIn(other, "gw-turin")}, "only objects of gateways"},
		"Secret of another":     {&corev1.Secret{ObjectMeta: metaIn(namespace, "password")}, "only objects of gateways"},
		"token": {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gw-token", Labels: labels,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "milan"}}, Type: corev1.SecretTypeServiceAccountToken}, "type"},
		"nonce elsewhere":            {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: wire.NonceSecret}}, "only objects of gateways"},
		"Secret of the installation": {&corev1.Secret{ObjectMeta: metaIn(metav1.NamespaceDefault, "gw-turin")}, "only objects of gateways"},
		"account elsewhere":          {&corev1.ServiceAccount{ObjectMeta: metaIn(other, "gw-turin")}, "only objects of gateways"},
		"budget elsewhere":           {&policyv1.PodDisruptionBudget{ObjectMeta: metaIn(other, "gw-turin")}, "only objects of gateways"},
		"Service with a selector": {&corev1.Service{ObjectMeta: metaIn(namespace, "gw-turin"), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		}}, "no selector"},
		"Service of another": {&corev1.Service{ObjectMeta: metaIn(other, "web"), Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: 80}},
		}}, "only objects of gateways"},
		"binding elsewhere":    {binding(other, "liqo-gateway", "ClusterRole", rbac.ServiceAccount(other, "refract-gateway")), "only to their ServiceAccounts"},
		"binding of another":   {binding(namespace, "liqo-gateway", "ClusterRole", rbac.User("eve")), "only to their ServiceAccounts"},
		"nodes in a namespace": {binding(namespace, "liqo-gateway-nodes", "ClusterRole", account), "binds only roles of"},
		"cluster role of another": {&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "gw"}, Subjects: []rbacv1.Subject{account},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-gateway"}}, "only to their ServiceAccounts"},
		"nodes for another": {&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "gw"}, Subjects: []rbacv1.Subject{rbac.User("eve")},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-gateway-nodes"}}, "only to their ServiceAccounts"},
	} {
		err := manager.Create(t.Context(), c.object, client.DryRunAll)
		assert.ErrorContains(t, err, c.text, name)
	}
	existing := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	rome.Create(t, existing)
	taken := existing.DeepCopy()
	taken.Labels = labels
	assert.ErrorContains(t, manager.Patch(t.Context(), taken, client.MergeFrom(existing), client.DryRunAll), "only objects of gateways")
}

// TestGatewaysLeadOnlyToThemselves checks that a compromised gateway can write only its own addresses to the
// EndpointSlice of its Service and to its status.
func TestGatewaysLeadOnlyToThemselves(t *testing.T) {
	start(t)
	namespace := tenant(t, "milan")
	server := serverOf(namespace, "milan", corev1.ServiceTypeClusterIP)
	rome.Create(t, server)
	awaitServer(t, server, "the endpoint", func(s api.GatewayServerStatus) bool { return s.Endpoint != nil })
	access := rest.CopyConfig(rome.Config())
	access.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":refract-gateway",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		Extra: map[string][]string{
			"authentication.kubernetes.io/pod-name": {"gw-milan-1"}, "authentication.kubernetes.io/node-name": {"worker-1"},
		},
	}
	gateway, err := client.New(access, client.Options{Scheme: rome.Client.Scheme()})
	require.NoError(t, err)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.GatewayElection}}
	const own = `{"addresses":["10.1.0.7"],"nodeName":"worker-1","conditions":{"ready":true},"targetRef":{"kind":"Pod","name":"gw-milan-1"}}`
	patch := func(text string) error {
		return gateway.Patch(t.Context(), slice.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	status := func(text string) error {
		return gateway.Status().Patch(t.Context(), server.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	controllertest.Eventually(t, "the permissions of the gateway", func() error { return patch(`{"endpoints":[` + own + `]}`) })
	require.NoError(t, status(`{"status":{"internalEndpoint":{"ip":"10.1.0.7","node":"worker-1"}}}`))
	for name, err := range map[string]error{
		"two endpoints":   patch(`{"endpoints":[` + own + `,` + own + `]}`),
		"another pod":     patch(`{"endpoints":[{"addresses":["10.1.0.9"],"nodeName":"worker-1","targetRef":{"kind":"Pod","name":"web"}}]}`),
		"no pod":          patch(`{"endpoints":[{"addresses":["10.1.0.9"],"nodeName":"worker-1"}]}`),
		"another node":    patch(`{"endpoints":[{"addresses":["10.1.0.9"],"nodeName":"worker-2","targetRef":{"kind":"Pod","name":"gw-milan-1"}}]}`),
		"another port":    patch(`{"ports":[{"name":"dns","port":53,"protocol":"UDP"}]}`),
		"another Service": patch(`{"metadata":{"labels":{"kubernetes.io/service-name":"web"}}}`),
	} {
		assert.ErrorContains(t, err, "only to its own pod", name)
	}
	assert.ErrorContains(t, status(`{"status":{"endpoint":{"addresses":["203.0.113.66"]}}}`), "only internalEndpoint")
	assert.ErrorContains(t, status(`{"status":{"secretRef":{"name":"kubeconfig"}}}`), "only internalEndpoint")
	assert.ErrorContains(t, status(`{"status":{"internalEndpoint":{"ip":"10.1.0.9","node":"worker-2"}}}`), "only to its own node")
}
