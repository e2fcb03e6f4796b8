// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways_test

import (
	"crypto/ecdh"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/gateway/takeover"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/release"
	"github.com/refract-project/refract/test/support/testenv"
)

var rome = controllertest.Cluster{
	ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../api/crds", "../../api/crds/network"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &rome)) }

// start starts the controllers, with the templates of the chart. Keys are not replaced.
func start(t *testing.T) *controllertest.Manager {
	t.Helper()
	return startRotating(t, 0)
}

// startRotating starts the controllers, which replace keys of the given age.
func startRotating(t *testing.T, interval time.Duration) *controllertest.Manager {
	t.Helper()
	manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, rome.Grant(t.Context(), manager.Gateways()...))
	objects, err := release.Render("refract", metav1.NamespaceDefault, map[string]any{
		"discovery":         map[string]any{"config": map[string]any{"clusterID": "rome"}},
		"virtualKubelet":    map[string]any{"image": map[string]any{"name": "virtual-kubelet"}},
		"controllerManager": map[string]any{"image": map[string]any{"name": "controller-manager"}},
		"networking": map[string]any{
			"addresses": map[string]any{"enabled": true},
			"gateways":  map[string]any{"enabled": true, "image": map[string]any{"name": "gateway", "version": "1"}},
		},
	})
	require.NoError(t, err)
	for _, object := range objects {
		if kind := object.GetKind(); kind == api.WgGatewayServerTemplateKind || kind == api.WgGatewayClientTemplateKind {
			if err := rome.Client.Create(t.Context(), object.DeepCopy()); err != nil {
				require.NoError(t, client.IgnoreAlreadyExists(err))
			}
		}
	}
	return rome.StartManager(t, func(o *controllers.Options) {
		o.Gateways.Enabled, o.Gateways.KeyRotationInterval, o.Installation = true, interval, metav1.NamespaceDefault
	})
}

// tenant creates the tenant namespace of a peer.
func tenant(t *testing.T, id string) string {
	t.Helper()
	namespace := rome.Namespace(t)
	rome.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		fmt.Sprintf(`{"metadata":{"labels":{%q:"true",%q:%q}}}`, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, id))
	return namespace
}

func metaOf(namespace, peer string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: peer, Labels: map[string]string{wire.RemoteClusterIDLabel: peer}}
}

func serverOf(namespace, peer string, service corev1.ServiceType) *api.GatewayServer {
	return &api.GatewayServer{ObjectMeta: metaOf(namespace, peer), Spec: api.GatewayServerSpec{
		MTU:               1340,
		Endpoint:          api.Endpoint{Port: 51840, ServiceType: service},
		ServerTemplateRef: corev1.ObjectReference{Kind: api.WgGatewayServerTemplateKind, Namespace: metav1.NamespaceDefault, Name: "wireguard-server"},
	}}
}

func clientOf(namespace, peer string) *api.GatewayClient {
	return &api.GatewayClient{ObjectMeta: metaOf(namespace, peer), Spec: api.GatewayClientSpec{
		MTU:               1340,
		Endpoint:          api.EndpointStatus{Addresses: []string{"192.0.2.1"}, Port: 51840},
		ClientTemplateRef: corev1.ObjectReference{Kind: api.WgGatewayClientTemplateKind, Namespace: metav1.NamespaceDefault, Name: "wireguard-client"},
	}}
}

// awaitDeployment waits until the gateway has a Deployment.
func awaitDeployment(t *testing.T, namespace, peer string) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	controllertest.Eventually(t, "the Deployment of gateway "+peer, func() error {
		return rome.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "gw-" + peer}, deployment)
	})
	return deployment
}

// awaitServer waits until the status of a server is as expected.
func awaitServer(t *testing.T, s *api.GatewayServer, what string, isReached func(api.GatewayServerStatus) bool) api.GatewayServerStatus {
	t.Helper()
	controllertest.Eventually(t, what, func() error {
		if err := rome.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		if !isReached(s.Status) {
			return fmt.Errorf("the status is %+v", s.Status)
		}
		return nil
	})
	return s.Status
}

// TestServer checks all objects of a GatewayServer, including the objects that liqoctl waits for, and the permissions
// of the pods.
func TestServer(t *testing.T) {
	start(t)
	namespace := tenant(t, "milan")
	server := serverOf(namespace, "milan", corev1.ServiceTypeClusterIP)
	rome.Create(t, server)
	status := awaitServer(t, server, "the endpoint", func(s api.GatewayServerStatus) bool { return s.Endpoint != nil })

	service := &corev1.Service{}
	rome.Get(t, service, namespace, "gw-milan")
	assert.Equal(t, service.Spec.ClusterIPs, status.Endpoint.Addresses)
	assert.Equal(t, int32(51840), status.Endpoint.Port)
	assert.Equal(t, corev1.ProtocolUDP, *status.Endpoint.Protocol)
	assert.Empty(t, service.Spec.Selector)
	slice := &discoveryv1.EndpointSlice{}
	rome.Get(t, slice, namespace, wire.GatewayElection)
	assert.Equal(t, "gw-milan", slice.Labels[discoveryv1.LabelServiceName])
	assert.Equal(t, int32(51840), *slice.Ports[0].Port)

	secret := &corev1.Secret{}
	rome.Get(t, secret, namespace, status.SecretRef.Name)
	assert.Equal(t, "true", secret.Labels[wire.GatewayResourceLabel])
	assert.Equal(t, "milan", secret.Labels[wire.RemoteClusterIDLabel])
	private, err := ecdh.X25519().NewPrivateKey(secret.Data["privateKey"])
	require.NoError(t, err)
	assert.Equal(t, private.PublicKey().Bytes(), secret.Data["publicKey"])

	deployment := &appsv1.Deployment{}
	rome.Get(t, deployment, namespace, status.ServerRef.Name)
	assert.Equal(t, int32(2), *deployment.Spec.Replicas)
	pod := deployment.Spec.Template
	assert.Equal(t, map[string]string{
		wire.GatewayComponentLabel: "gateway", wire.GatewayNameLabel: "milan", wire.GatewayNamespaceLabel: namespace,
	}, deployment.Spec.Selector.MatchLabels)
	container := pod.Spec.Containers[0]
	assert.Subset(t, container.Args, []string{
		"run", "--name=milan", "--cluster-id=rome", "--liqo-namespace=default", "--standby", "--wireguard=auto", "--keys-dir=/etc/wireguard/keys",
	})
	addresses := container.Env[slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "POD_IP" })]
	assert.Equal(t, "status.podIPs", addresses.ValueFrom.FieldRef.FieldPath, "status.podIP may be an IPv6 address")
	assert.Equal(t, []corev1.Capability{"NET_ADMIN"}, container.SecurityContext.Capabilities.Add)
	assert.False(t, pod.Spec.HostNetwork)
	keys := pod.Spec.Volumes[slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "keys" })]
	assert.Equal(t, "gw-milan", keys.Secret.SecretName)
	assert.Equal(t, []corev1.KeyToPath{{Key: "privateKey", Path: "privateKey"}}, keys.Secret.Items)

	rome.Get(t, &policyv1.PodDisruptionBudget{}, namespace, "gw-milan")
	account := rbac.ServiceAccount(namespace, "refract-gateway")
	assert.Equal(t, account.Name, pod.Spec.ServiceAccountName)
	rome.Get(t, &corev1.ServiceAccount{}, namespace, account.Name)
	for binding, key := range map[client.Object]client.ObjectKey{
		&rbacv1.RoleBinding{}:        {Namespace: namespace, Name: "liqo-gateway"},
		&rbacv1.ClusterRoleBinding{}: {Name: "liqo-gateway-nodes:" + namespace},
	} {
		require.NoError(t, rome.Client.Get(t.Context(), key, binding))
		require.Len(t, binding.GetOwnerReferences(), 1)
	}

	// The other objects of the gateway are deleted together with it.
	rome.Delete(t, server)
	for _, object := range []client.Object{deployment, service, slice, secret} {
		rome.AwaitGone(t, object)
	}
}

// TestAPodThatEnds checks that the Event about a gateway without an available pod has the error with which its pod ends.
func TestAPodThatEnds(t *testing.T) {
	start(t)
	namespace := tenant(t, "milan")
	server := serverOf(namespace, "milan", corev1.ServiceTypeClusterIP)
	rome.Create(t, server)
	deployment := awaitDeployment(t, namespace, "milan")
	assert.Equal(t, corev1.TerminationMessageFallbackToLogsOnError, deployment.Spec.Template.Spec.Containers[0].TerminationMessagePolicy)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gw-milan-1", Labels: deployment.Spec.Selector.MatchLabels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway", Image: "gateway"}}},
	}
	rome.Create(t, pod)
	rome.PatchStatus(t, pod, `{"status":{"containerStatuses":[{"name":"gateway","image":"","imageID":"","ready":false,"restartCount":1,
		"state":{"waiting":{"reason":"CrashLoopBackOff","message":"back-off 10s"}},
		"lastState":{"terminated":{"exitCode":1,"message":"a line of the log\ngateway: the pod has no IPv4 address\n"}}}]}}`)
	event := rome.AwaitEvent(t, namespace, api.GatewayServerKind, "milan", "GatewayUnavailable")
	assert.Contains(t, event.Note, "pod gw-milan-1: CrashLoopBackOff: back-off 10s: gateway: the pod has no IPv4 address")
}

// TestClient checks that a GatewayClient has no Service, and that objects of a client are deleted with it.
func TestClient(t *testing.T) {
	start(t)
	namespace := tenant(t, "milan")
	gatewayClient := clientOf(namespace, "milan")
	rome.Create(t, gatewayClient)
	deployment := awaitDeployment(t, namespace, "milan")
	assert.Equal(t, gatewayClient.UID, deployment.OwnerReferences[0].UID)
	controllertest.Eventually(t, "the status", func() error {
		rome.Get(t, gatewayClient, namespace, "milan")
		if gatewayClient.Status.SecretRef == nil || gatewayClient.Status.ClientRef == nil {
			return fmt.Errorf("the status is %+v", gatewayClient.Status)
		}
		return nil
	})
	services := &corev1.ServiceList{}
	require.NoError(t, rome.Client.List(t.Context(), services, client.InNamespace(namespace)))
	assert.Empty(t, services.Items)
}

// TestTemplateChanges checks that a changed template changes the Deployments of its gateways, and that changes by an
// administrator to a Deployment are kept otherwise.
func TestTemplateChanges(t *testing.T) {
	m := start(t)
	namespace := tenant(t, "milan")
	template := &api.WgGatewayServerTemplate{}
	rome.Get(t, template, metav1.NamespaceDefault, "wireguard-server")
	own := &api.WgGatewayServerTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "own"}, Spec: template.Spec}
	rome.Create(t, own)
	server := serverOf(namespace, "milan", corev1.ServiceTypeClusterIP)
	server.Spec.ServerTemplateRef.Name = "own"
	rome.Create(t, server)
	deployment := awaitDeployment(t, namespace, "milan")
	awaitServer(t, server, "the endpoint", func(s api.GatewayServerStatus) bool { return s.Endpoint != nil })

	rome.Patch(t, deployment, `{"spec":{"replicas":3}}`)
	m.Stop(t)
	m = start(t)
	rome.Patch(t, server, `{"metadata":{"annotations":{"changed":"true"}}}`)
	rome.Patch(t, own, `{"spec":{"template":{"metadata":{"labels":{"team":"net"}}}}}`)
	rome.Get(t, deployment, namespace, "gw-milan")
	assert.Equal(t, int32(3), *deployment.Spec.Replicas, "a new process leaves the choice of an administrator")

	rome.Patch(t, own, `{"spec":{"template":{"spec":{"replicas":1}}}}`)
	controllertest.Eventually(t, "one replica", func() error {
		rome.Get(t, deployment, namespace, "gw-milan")
		if *deployment.Spec.Replicas != 1 {
			return fmt.Errorf("%d replicas", *deployment.Spec.Replicas)
		}
		return nil
	})
	rome.AwaitEvent(t, namespace, api.GatewayServerKind, "milan", "GatewayUpdated")
	require.Empty(t, m.Writes.Denied())
}

// TestServiceSettings checks that the Service of a server has the annotations and the class of load balancers that the
// template contains, that changed annotations are applied, and that annotations of others stay.
func TestServiceSettings(t *testing.T) {
	m := start(t)
	namespace := tenant(t, "milan")
	given := &api.WgGatewayServerTemplate{}
	rome.Get(t, given, metav1.NamespaceDefault, "wireguard-server")
	cloud := &api.WgGatewayServerTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "cloud"}, Spec: given.Spec}
	rome.Create(t, cloud)
	rome.Patch(t, cloud, `{"spec":{"template":{"service":{"annotations":{"cloud.example.com/type":"internal"},"loadBalancerClass":"example.com/nlb"}}}}`)
	server := serverOf(namespace, "milan", corev1.ServiceTypeLoadBalancer)
	server.Spec.ServerTemplateRef.Name = "cloud"
	rome.Create(t, server)
	service := &corev1.Service{}
	awaitService := func(what string, isExpected func() bool) {
		t.Helper()
		controllertest.Eventually(t, what, func() error {
			if err := rome.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "gw-milan"}, service); err != nil {
				return err
			}
			if !isExpected() {
				return fmt.Errorf("the Service is %+v", service)
			}
			return nil
		})
	}
	awaitService("the settings", func() bool {
		return service.Annotations["cloud.example.com/type"] == "internal" && ptr.Deref(service.Spec.LoadBalancerClass, "") == "example.com/nlb"
	})
	rome.Patch(t, service, `{"metadata":{"annotations":{"of-the-cloud":"1"}}}`)
	rome.Patch(t, cloud, `{"spec":{"template":{"service":{"annotations":{"cloud.example.com/type":"public"},"loadBalancerClass":"example.com/other"}}}}`)
	awaitService("the changed annotation", func() bool { return service.Annotations["cloud.example.com/type"] == "public" })
	assert.Equal(t, "1", service.Annotations["of-the-cloud"])
	assert.Equal(t, "example.com/nlb", *service.Spec.LoadBalancerClass, "the class of a Service cannot be changed")

	rome.Patch(t, server, `{"spec":{"endpoint":{"serviceType":"NodePort"}}}`)
	awaitService("a node port", func() bool {
		return service.Spec.Type == corev1.ServiceTypeNodePort && service.Spec.LoadBalancerClass == nil
	})
	require.Empty(t, m.Writes.Denied())
}

// TestNodePort checks that the endpoint of a server follows the node of the active pod, and its addresses.
func TestNodePort(t *testing.T) {
	start(t)
	for name, address := range map[string]string{"gateway-a": "10.9.0.1", "gateway-b": "10.9.0.2"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		rome.Create(t, node)
		defer rome.Delete(t, node)
		rome.PatchStatus(t, node, fmt.Sprintf(`{"status":{"addresses":[{"type":"ExternalIP","address":"203.0.113.9"},{"type":"InternalIP","address":%q}]}}`, address))
	}
	namespace := tenant(t, "milan")
	server := serverOf(namespace, "milan", corev1.ServiceTypeNodePort)
	rome.Create(t, server)
	rome.AwaitEvent(t, namespace, api.GatewayServerKind, "milan", "WaitingForAddress")

	// No pod is active before the peer has sent its key, and the peer needs the endpoint first.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gw-milan-1", Labels: map[string]string{
		wire.GatewayComponentLabel: wire.GatewayComponent, wire.GatewayNameLabel: "milan", wire.GatewayNamespaceLabel: namespace,
	}}, Spec: corev1.PodSpec{NodeName: "gateway-b", Containers: []corev1.Container{{Name: "gateway", Image: "gateway"}}}}
	rome.Create(t, pod)
	rome.Patch(t, server, `{"metadata":{"labels":{"again":"true"}}}`)
	awaitServer(t, server, "the address of the node of a pod", func(s api.GatewayServerStatus) bool {
		return s.Endpoint != nil && s.Endpoint.Addresses[0] == "10.9.0.2"
	})
	for node, address := range map[string]string{"gateway-a": "10.9.0.1", "gateway-b": "10.9.0.2"} {
		rome.PatchStatus(t, server, fmt.Sprintf(`{"status":{"internalEndpoint":{"ip":"10.1.0.7","node":%q}}}`, node))
		status := awaitServer(t, server, "the address of "+node, func(s api.GatewayServerStatus) bool {
			return s.Endpoint != nil && s.Endpoint.Addresses[0] == address
		})
		assert.Equal(t, []string{address, "203.0.113.9"}, status.Endpoint.Addresses)
		service := &corev1.Service{}
		rome.Get(t, service, namespace, "gw-milan")
		assert.Equal(t, service.Spec.Ports[0].NodePort, status.Endpoint.Port)
		assert.Equal(t, "10.1.0.7", string(*status.InternalEndpoint.IP), "the status of the pods is not overwritten")
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: *server.Status.InternalEndpoint.Node}}
	rome.PatchStatus(t, node, `{"status":{"addresses":[{"type":"InternalIP","address":"10.9.0.3"}]}}`)
	awaitServer(t, server, "the new address of the node", func(s api.GatewayServerStatus) bool { return s.Endpoint.Addresses[0] == "10.9.0.3" })
}

// TestLoadBalancer checks that a server waits for a load balancer and reports this in an Event, and that its status
// follows the addresses of the load balancer and keeps the last one.
func TestLoadBalancer(t *testing.T) {
	start(t)
	namespace := tenant(t, "milan")
	server := serverOf(namespace, "milan", corev1.ServiceTypeLoadBalancer)
	rome.Create(t, server)
	event := rome.AwaitEvent(t, namespace, api.GatewayServerKind, "milan", "WaitingForAddress")
	assert.Contains(t, event.Note, "Service gw-milan of type LoadBalancer")
	service := &corev1.Service{}
	rome.Get(t, service, namespace, "gw-milan")
	awaitAddresses := func(want ...string) {
		t.Helper()
		awaitServer(t, server, "the addresses", func(s api.GatewayServerStatus) bool {
			return s.Endpoint != nil && slices.Equal(s.Endpoint.Addresses, want)
		})
	}
	rome.PatchStatus(t, service, `{"status":{"loadBalancer":{"ingress":[{"hostname":"lb.example.com"},{"ip":"203.0.113.1"}]}}}`)
	awaitAddresses("203.0.113.1", "lb.example.com")
	rome.PatchStatus(t, service, `{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.2"}]}}}`)
	awaitAddresses("203.0.113.2")

	// A changed port in the spec of the server must be applied, too.
	rome.Patch(t, server, `{"spec":{"endpoint":{"port":51841}}}`)
	awaitServer(t, server, "the new port", func(s api.GatewayServerStatus) bool { return s.Endpoint.Port == 51841 })
	slice := &discoveryv1.EndpointSlice{}
	rome.Get(t, slice, namespace, wire.GatewayElection)
	assert.Equal(t, int32(51841), *slice.Ports[0].Port)
	rome.PatchStatus(t, service, `{"status":{"loadBalancer":{"ingress":null}}}`)
	rome.Patch(t, server, `{"metadata":{"labels":{"again":"true"}}}`)
	rome.AwaitEvent(t, namespace, api.GatewayServerKind, "milan", "WaitingForAddress")
	awaitAddresses("203.0.113.2")
}

// TestRefusedGateways checks which gateways are not run, and that their Events contain the reason.
func TestRefusedGateways(t *testing.T) {
	start(t)
	template := &api.WgGatewayServerTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "broken"}}
	template.Spec.ObjectKind = api.ObjectKind{APIVersion: "apps/v1", Kind: "Deployment"}
	template.Spec.Template = runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"other","image":"x"}]}}}}`)}
	rome.Create(t, template)
	for name, c := range map[string]struct {
		change       func(*api.GatewayServer)
		reason, text string
	}{
		"another cluster":  {func(s *api.GatewayServer) { s.Labels[wire.RemoteClusterIDLabel] = "turin" }, "WrongCluster", `"turin"`},
		"no template":      {func(s *api.GatewayServer) { s.Spec.ServerTemplateRef.Name = "none" }, "TemplateNotFound", "none does not exist"},
		"broken template":  {func(s *api.GatewayServer) { s.Spec.ServerTemplateRef.Name = "broken" }, "InvalidTemplate", "no container gateway"},
		"no port":          {func(s *api.GatewayServer) { s.Spec.Endpoint.Port = 0 }, "InvalidGateway", "spec.endpoint.port 0"},
		"port of VXLAN":    {func(s *api.GatewayServer) { s.Spec.Endpoint.Port = desired.VXLANPort }, "InvalidGateway", "used by the gateway itself"},
		"port of probes":   {func(s *api.GatewayServer) { s.Spec.Endpoint.Port = takeover.Port }, "InvalidGateway", "used by the gateway itself"},
		"port of pings":    {func(s *api.GatewayServer) { s.Spec.Endpoint.Port = desired.PingPort }, "InvalidGateway", "used by the gateway itself"},
		"kind of template": {func(s *api.GatewayServer) { s.Spec.ServerTemplateRef.Kind = "Other" }, "TemplateNotFound", "set it to WgGatewayServerTemplate"},
		"external name":    {func(s *api.GatewayServer) { s.Spec.Endpoint.ServiceType = corev1.ServiceTypeExternalName }, "InvalidGateway", "use LoadBalancer"},
		"refused port": {func(s *api.GatewayServer) {
			port := int32(80)
			s.Spec.Endpoint.ServiceType, s.Spec.Endpoint.NodePort = corev1.ServiceTypeNodePort, &port
		}, "InvalidGateway", "nodePort"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := tenant(t, "milan")
			server := serverOf(namespace, "milan", corev1.ServiceTypeClusterIP)
			c.change(server)
			rome.Create(t, server)
			event := rome.AwaitEvent(t, namespace, api.GatewayServerKind, "milan", c.reason)
			assert.Contains(t, event.Note, c.text)
			deployments := &appsv1.DeploymentList{}
			require.NoError(t, rome.Client.List(t.Context(), deployments, client.InNamespace(namespace)))
			assert.Empty(t, deployments.Items)
		})
	}
}

// TestOneGatewayForEachPeer checks that the second gateway of a tenant namespace waits until the first one is gone.
func TestOneGatewayForEachPeer(t *testing.T) {
	start(t)
	namespace := tenant(t, "milan")
	first := serverOf(namespace, "milan", corev1.ServiceTypeClusterIP)
	rome.Create(t, first)
	awaitServer(t, first, "the first one to run", func(s api.GatewayServerStatus) bool { return s.SecretRef != nil })
	second := clientOf(namespace, "milan")
	second.Name = "second"
	rome.Create(t, second)
	event := rome.AwaitEvent(t, namespace, api.GatewayClientKind, "second", "AnotherGateway")
	assert.Contains(t, event.Note, "GatewayServer milan")
	// The Event is written only once even if the gateways have the same name.
	named := clientOf(namespace, "milan")
	rome.Create(t, named)
	rome.AwaitEvent(t, namespace, api.GatewayClientKind, "milan", "AnotherGateway")
	for i := range 3 {
		rome.Patch(t, first, fmt.Sprintf(`{"spec":{"mtu":%d}}`, 1300+i))
		rome.Patch(t, first, fmt.Sprintf(`{"spec":{"endpoint":{"port":%d}}}`, 51840+i))
		awaitServer(t, first, "the port", func(s api.GatewayServerStatus) bool { return s.Endpoint != nil && s.Endpoint.Port == int32(51840+i) })
	}
	found := slices.DeleteFunc(rome.Events(t, namespace, api.GatewayClientKind, "milan"), func(e eventsv1.Event) bool { return e.Reason != "AnotherGateway" })
	require.Len(t, found, 1)
	assert.Nil(t, found[0].Series, "the Event was written again")
	rome.Delete(t, named)
	rome.Delete(t, first)
	awaitDeployment(t, namespace, "second")
}

// TestForeignObjects checks that gateways with templates of Liqo, and objects of others, are left as they are.
func TestForeignObjects(t *testing.T) {
	m := start(t)
	template := &api.WgGatewayServerTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "liqo"}}
	template.Spec.ObjectKind = api.ObjectKind{APIVersion: "networking.liqo.io/v1beta1", Kind: "WgGatewayServer"}
	rome.Create(t, template)
	ofLiqo, elsewhere := tenant(t, "milan"), tenant(t, "turin")
	server := serverOf(ofLiqo, "milan", corev1.ServiceTypeClusterIP)
	server.Spec.ServerTemplateRef.Name = "liqo"
	rome.Create(t, server)
	// A peer may create objects in its own tenant namespace, but its templates do not run.
	forged := &api.WgGatewayServerTemplate{}
	rome.Get(t, forged, metav1.NamespaceDefault, "wireguard-server")
	rome.Create(t, &api.WgGatewayServerTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "wireguard-server"}, Spec: forged.Spec})
	server = serverOf(elsewhere, "turin", corev1.ServiceTypeClusterIP)
	server.Spec.ServerTemplateRef.Namespace = elsewhere
	rome.Create(t, server)

	namespace := tenant(t, "genoa")
	selector := map[string]string{"app": "other"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gw-genoa"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: selector},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}},
	}}
	rome.Create(t, deployment)
	rome.Create(t, serverOf(namespace, "genoa", corev1.ServiceTypeClusterIP))
	event := rome.AwaitEvent(t, namespace, api.GatewayServerKind, "genoa", "ObjectConflict")
	assert.Contains(t, event.Note, "Deployment gw-genoa exists and does not belong to this GatewayServer")
	after := &appsv1.Deployment{}
	rome.Get(t, after, namespace, "gw-genoa")
	assert.Equal(t, deployment.Generation, after.Generation)
	for _, namespace := range []string{ofLiqo, elsewhere} {
		assert.Empty(t, m.Writes.About("/namespaces/"+namespace+"/deployments"), "other controllers run this gateway")
	}
}

// TestKeys checks that an existing Secret is used, that a Secret named in the spec is not created, and that new keys
// are generated only while no pod is available.
func TestKeys(t *testing.T) {
	start(t)
	t.Run("adopted", func(t *testing.T) {
		namespace := tenant(t, "milan")
		secret := &corev1.Secret{ObjectMeta: metaOf(namespace, "gw-milan"), Data: map[string][]byte{"privateKey": []byte("of Liqo")}}
		rome.Create(t, secret)
		rome.Create(t, clientOf(namespace, "milan"))
		awaitDeployment(t, namespace, "milan")
		after := &corev1.Secret{}
		rome.Get(t, after, namespace, "gw-milan")
		assert.Equal(t, secret.Data, after.Data)
	})
	t.Run("given", func(t *testing.T) {
		namespace := tenant(t, "milan")
		gatewayClient := clientOf(namespace, "milan")
		gatewayClient.Spec.SecretRef.Name = "own-keys"
		rome.Create(t, gatewayClient)
		deployment := awaitDeployment(t, namespace, "milan")
		volumes := deployment.Spec.Template.Spec.Volumes
		assert.Equal(t, "own-keys", volumes[len(volumes)-1].Secret.SecretName)
		assert.False(t, slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == "keys-alternate" }))
		secrets := &corev1.SecretList{}
		require.NoError(t, rome.Client.List(t.Context(), secrets, client.InNamespace(namespace)))
		assert.Empty(t, secrets.Items)
	})
	t.Run("deleted", func(t *testing.T) {
		namespace := tenant(t, "milan")
		gatewayClient := clientOf(namespace, "milan")
		rome.Create(t, gatewayClient)
		deployment := awaitDeployment(t, namespace, "milan")
		rome.PatchStatus(t, deployment, `{"status":{"replicas":2,"readyReplicas":2,"availableReplicas":2}}`)
		secret := &corev1.Secret{}
		rome.Get(t, secret, namespace, "gw-milan")
		rome.Delete(t, secret)
		rome.Patch(t, gatewayClient, `{"spec":{"mtu":1300}}`)
		rome.Patch(t, deployment, `{"metadata":{"annotations":{"again":"true"}}}`)
		rome.PatchStatus(t, deployment, `{"status":{"replicas":2,"readyReplicas":0,"availableReplicas":0}}`)
		rome.AwaitEvent(t, namespace, api.GatewayClientKind, "milan", "NewKeys")
		rome.Get(t, &corev1.Secret{}, namespace, "gw-milan")
	})
}
