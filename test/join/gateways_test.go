// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/test/support/testenv"
)

// podRange is the pod range of both clusters.
const podRange = "10.244.0.0/16"

// linked contains the clusters of a test of gateways.
type linked struct {
	*world
	clients map[*side]client.Client
}

// TestGateways joins two clusters with the same pod range through gateways, and separates them again: from both kubeconfigs, with an
// invitation, and from one cluster alone. The gateways themselves run in test/nodes and in test/network; here, the test writes what
// the active pod would write.
func TestGateways(t *testing.T) {
	t.Parallel()
	w := begin(t)
	l := &linked{world: w, clients: map[*side]client.Client{}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, networking.AddToScheme, ipam.AddToScheme, plugins.AddToScheme, offloading.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	bin := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, testenv.BuildCommands(t.Context(), bin, "controller-manager", "virtual-kubelet"))
	w.must("install", "--cluster-id=rome", "--registry=registry.example.com/refract", replicas)
	w.must("install", "--cluster-id=milan", "--context=milan", "--registry=registry.example.com/refract", "--network=gateway", replicas)
	peer := []string{"peer", "--remote-context=milan", "--remote-api-server-url=" + w.milan.Config().Host, "--cpu=2",
		"--network=gateway", "--gw-server-service-type=ClusterIP", "--pod-cidrs=" + podRange, "--remote-pod-cidrs=" + podRange}
	w.refused(append(peer, "--dry-run"), "cluster rome: gateways are not enabled", "refractctl install --network=gateway")
	w.must("install", "--network=gateway")
	for _, s := range []*side{w.rome, w.milan} {
		c, err := client.New(s.Config(), client.Options{Scheme: scheme})
		require.NoError(t, err)
		l.clients[s] = c
		redirectWebhooks(t, s)
		defer runPods(t, s, bin)()
		defer w.explainOnFailure(s)
		stop := l.playGateways(s)
		defer stop()
	}
	w.controllersWork()
	romeInstalled, milanInstalled := w.inventory(w.rome), w.inventory(w.milan)

	w.refused([]string{"peer", "--remote-context=milan", "--network=none", "--mtu=1400"}, "the flags of gateways need --network=gateway")
	w.must(append(peer, "--dry-run")...)
	assert.Equal(t, milanInstalled, w.inventory(w.milan))
	assert.Equal(t, romeInstalled, w.inventory(w.rome))
	begun := time.Now()
	w.must(peer...)
	t.Logf("joined and connected within %.0f s", time.Since(begun).Seconds())
	l.checkLink()
	joined := w.inventory(w.milan)
	w.must("peer", "--remote-context=milan", "--remote-api-server-url="+w.milan.Config().Host)
	w.unchanged(w.milan, joined)
	l.checkStatus()
	l.rotated()
	l.disconnected()
	w.must("unpeer", "--remote-context=milan")
	w.unchanged(w.rome, romeInstalled)
	w.unchanged(w.milan, milanInstalled)

	l.invited(romeInstalled, milanInstalled)
	l.alone(peer, romeInstalled)
}

// playGateways writes what the active pod of each gateway would write, until stop is called: the node where it runs, and the
// Connection when the cluster has the ranges and the key of the peer.
func (l *linked) playGateways(s *side) (stop func()) {
	c := l.clients[s]
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		wait.Until(func() {
			servers, clients := &networking.GatewayServerList{}, &networking.GatewayClientList{}
			if c.List(l.Context(), servers) != nil || c.List(l.Context(), clients) != nil {
				return // tried again
			}
			endpoint := &networking.InternalGatewayEndpoint{IP: ptr.To(networking.IP("10.244.0.9")), Node: ptr.To(s.Name() + "-kwok-1")}
			for i := range servers.Items {
				g := &servers.Items[i]
				before := g.DeepCopy()
				g.Status.InternalEndpoint = endpoint
				_ = c.Status().Patch(l.Context(), g, client.MergeFrom(before))
				l.playConnection(c, g, networking.ServerConnection)
			}
			for i := range clients.Items {
				g := &clients.Items[i]
				before := g.DeepCopy()
				g.Status.InternalEndpoint = endpoint
				_ = c.Status().Patch(l.Context(), g, client.MergeFrom(before))
				l.playConnection(c, g, networking.ClientConnection)
			}
		}, 300*time.Millisecond, done)
	}()
	return func() { close(done); <-ended }
}

// playConnection creates the Connection of a gateway. It is connected while the objects that a gateway needs are there.
func (l *linked) playConnection(c client.Client, gateway client.Object, role networking.ConnectionType) {
	here := client.InNamespace(gateway.GetNamespace())
	keys, configurations := &networking.PublicKeyList{}, &networking.ConfigurationList{}
	if c.List(l.Context(), keys, here) != nil || c.List(l.Context(), configurations, here) != nil {
		return
	}
	kind := map[networking.ConnectionType]string{networking.ServerConnection: networking.GatewayServerKind, networking.ClientConnection: networking.GatewayClientKind}[role]
	connection := &networking.Connection{ObjectMeta: metav1.ObjectMeta{
		Namespace: gateway.GetNamespace(), Name: wire.GatewayObjectName(gateway.GetName()), Labels: map[string]string{wire.RemoteClusterIDLabel: gateway.GetLabels()[wire.RemoteClusterIDLabel]},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: networking.GroupVersion.String(), Kind: kind, Name: gateway.GetName(), UID: gateway.GetUID()}},
	}, Spec: networking.ConnectionSpec{Type: role}}
	_ = c.Create(l.Context(), connection)
	if c.Get(l.Context(), client.ObjectKeyFromObject(connection), connection) != nil {
		return
	}
	before := connection.DeepCopy()
	connection.Status.Value = networking.Connecting
	if len(keys.Items) > 0 && len(configurations.Items) > 0 && configurations.Items[0].Status.Remote != nil {
		connection.Status.Value = networking.Connected
		connection.Status.Latency = networking.ConnectionLatency{Value: "1ms", Timestamp: metav1.Now()}
	}
	_ = c.Status().Patch(l.Context(), connection, client.MergeFrom(before))
}

// get reads an object in the tenant namespace for a peer.
func (l *linked) get(s *side, peer, name string, object client.Object) {
	l.Helper()
	require.NoError(l, l.clients[s].Get(l.Context(), client.ObjectKey{Namespace: wire.TenantNamespace(peer), Name: name}, object))
}

// checkLink checks the objects of the link in both clusters.
func (l *linked) checkLink() {
	l.Helper()
	server, gatewayClient := &networking.GatewayServer{}, &networking.GatewayClient{}
	l.get(l.milan, "rome", "rome", server)
	l.get(l.rome, "milan", "milan", gatewayClient)
	assert.Equal(l, corev1.ServiceTypeClusterIP, server.Spec.Endpoint.ServiceType)
	assert.Equal(l, server.Status.Endpoint.Addresses, gatewayClient.Spec.Endpoint.Addresses)
	assert.Equal(l, server.Status.Endpoint.Port, gatewayClient.Spec.Endpoint.Port)
	for s, peer := range map[*side]string{l.rome: "milan", l.milan: "rome"} {
		configuration, network := &networking.Configuration{}, &plugins.PeerNetwork{}
		l.get(s, peer, peer, configuration)
		assert.Equal(l, []networking.CIDR{podRange}, configuration.Spec.Remote.CIDR.Pod)
		assert.NotEqual(l, []networking.CIDR{podRange}, configuration.Status.Remote.CIDR.Pod, "the same range is translated")
		l.get(s, peer, peer, network)
		assert.Equal(l, plugins.GatewayNetwork, network.Spec.Mode)
	}
	assert.Equal(l, l.publicKey(l.rome, "milan"), l.knownKey(l.milan, "rome"))
	assert.Equal(l, l.publicKey(l.milan, "rome"), l.knownKey(l.rome, "milan"))
	vn := &offloading.VirtualNode{}
	l.get(l.rome, "milan", "milan", vn)
	assert.NotContains(l, vn.Annotations, wire.RangesAnnotation)
	deployment := &appsv1.Deployment{}
	l.get(l.rome, "milan", "vk-milan", deployment)
	assert.Contains(l, fmt.Sprint(deployment.Spec.Template.Spec.Containers[0].Args), "--remote-pod-cidr="+podRange+" --remote-pod-cidr-remap=")
}

// publicKey returns the public key of a cluster's gateway, and knownKey the one that a cluster has of its peer.
func (l *linked) publicKey(s *side, peer string) []byte {
	l.Helper()
	secret := &corev1.Secret{}
	l.get(s, peer, wire.GatewayObjectName(peer), secret)
	return secret.Data[wire.PublicKeyField]
}

func (l *linked) knownKey(s *side, peer string) []byte {
	l.Helper()
	key := &networking.PublicKey{}
	l.get(s, peer, peer, key)
	return key.Spec.PublicKey
}

// checkStatus checks the status that the command prints, and the findings of doctor.
func (l *linked) checkStatus() {
	l.Helper()
	var printed struct{ Gateways []gateways.State }
	require.NoError(l, json.Unmarshal([]byte(l.must("network", "status", "-o", "json")), &printed))
	require.Len(l, printed.Gateways, 1)
	state := printed.Gateways[0]
	assert.Equal(l, networking.ClientConnection, state.Role)
	assert.Equal(l, networking.Connected, state.Value)
	assert.True(l, state.HasPublicKey)
	assert.Contains(l, state.Ranges[0], podRange+"=")
	assert.Contains(l, l.must("network", "status", "rome", "--context=milan"), "Server")
	l.refused([]string{"network", "status", "turin"}, "no gateway connects rome and turin")
}

// rotated replaces the keys of both gateways. Simulated pods start without the Secret that they mount, so that the controller manager
// would make no keys: the nodes are cordoned meanwhile.
func (l *linked) rotated() {
	l.Helper()
	l.cordon(true)
	defer l.cordon(false)
	before := [][]byte{l.publicKey(l.rome, "milan"), l.publicKey(l.milan, "rome")}
	l.must("network", "rotate", "--remote-context=milan", "--timeout=1m")
	assert.NotContains(l, before, l.publicKey(l.rome, "milan"))
	assert.NotContains(l, before, l.publicKey(l.milan, "rome"))
	assert.Equal(l, l.publicKey(l.rome, "milan"), l.knownKey(l.milan, "rome"))
	assert.Equal(l, l.publicKey(l.milan, "rome"), l.knownKey(l.rome, "milan"))
}

// cordon cordons the simulated nodes of both clusters, or ends that.
func (l *linked) cordon(isCordoned bool) {
	l.Helper()
	for _, s := range []*side{l.rome, l.milan} {
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, isCordoned)
		_, err := s.client.CoreV1().Nodes().Patch(l.Context(), s.Name()+"-kwok-1", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(l, err)
	}
}

// disconnected removes the gateways and connects the clusters again, with the same ranges and the other way round.
func (l *linked) disconnected() {
	l.Helper()
	configuration := &networking.Configuration{}
	l.get(l.rome, "milan", "milan", configuration)
	before := configuration.Status.Remote
	connect := []string{"network", "connect", "--remote-context=milan", "--gw-server-service-type=ClusterIP", "--gw-server-service-location=Consumer", "--timeout=1m"}
	l.refused(connect, "the one of the provider is the server: run refractctl network disconnect first")
	l.must("network", "disconnect", "--remote-context=milan")
	l.refused([]string{"network", "status", "milan"}, "not connected: milan")
	for s, peer := range map[*side]string{l.rome: "milan", l.milan: "rome"} {
		for _, list := range []client.ObjectList{&networking.GatewayServerList{}, &networking.GatewayClientList{}, &networking.PublicKeyList{}} {
			require.NoError(l, l.clients[s].List(l.Context(), list, client.InNamespace(wire.TenantNamespace(peer))))
			assert.Zero(l, metaLen(list))
		}
	}
	l.must(connect...)
	l.get(l.rome, "milan", "milan", &networking.GatewayServer{})
	l.get(l.rome, "milan", "milan", configuration)
	assert.Equal(l, before, configuration.Status.Remote)
	assert.Contains(l, l.must("network", "disconnect", "milan", "--dry-run"), "GatewayServer liqo-tenant-milan/milan would be removed")
}

func metaLen(list client.ObjectList) int {
	switch list := list.(type) {
	case *networking.GatewayServerList:
		return len(list.Items)
	case *networking.GatewayClientList:
		return len(list.Items)
	case *networking.PublicKeyList:
		return len(list.Items)
	}
	return -1
}

// invited joins the clusters with an invitation that contains the gateway of milan. The consumer itself writes its ranges and its key to
// milan, with its own permissions.
func (l *linked) invited(romeInstalled, milanInstalled string) {
	l.Helper()
	file := filepath.Join(l.TempDir(), "milan-for-rome.yaml")
	invite := []string{"generate", "peering-user", "rome", "--context=milan", "--cpu=2", "--output-file=" + file, "--api-server-url=" + l.milan.Config().Host, "--pod-cidrs=" + podRange}
	l.must(invite...)
	peer := []string{"peer", "--remote-kubeconfig=" + file, "--pod-cidrs=" + podRange, "--remote-api-server-url=" + l.milan.Config().Host}
	l.refused(append(peer, "--network=gateway"), "the invitation of milan contains no gateway", "generate peering-user rome --network=gateway")
	require.NoError(l, os.Remove(file))
	l.must(append(invite, "--network=gateway", "--gw-server-service-type=ClusterIP")...)
	l.must(peer...)
	l.checkLink()
	l.must("unpeer", "--remote-kubeconfig="+file)
	l.unchanged(l.rome, romeInstalled)
	l.must("delete", "peering-user", "rome", "--context=milan")
	l.unchanged(l.milan, milanInstalled)
}

// alone joins the clusters again, and removes the objects in rome only, as if milan never came back.
func (l *linked) alone(peer []string, romeInstalled string) {
	l.Helper()
	l.must(peer...)
	l.must("unpeer", "milan", "--force")
	l.unchanged(l.rome, romeInstalled)
}
