// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/proxy"
	"github.com/refract-project/refract/vk/heartbeat"
)

var (
	options  = testenv.Options{CRDPaths: []string{"../../api/crds", "testdata"}, NoScheduler: true}
	consumer = controllertest.Cluster{ID: "rome", Options: options}
	provider = controllertest.Cluster{ID: "milan", Options: options}
)

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer, &provider)) }

// tenant creates the tenant namespace for another cluster.
func tenant(t *testing.T, in *controllertest.Cluster, id string) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: wire.TenantNamespace(id), Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: id}}}
	in.Create(t, namespace)
	return namespace
}

// as returns a client with the permissions of a consumer in its tenant namespace.
func as(t *testing.T, id string) kubernetes.Interface {
	t.Helper()
	config, err := provider.ConfigFor("kubelet-of-"+id, id)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	group := rbac.Peer("", id)
	require.NoError(t, provider.Grant(t.Context(), append(group.Objects(), group.TenantNamespace(wire.TenantNamespace(id)))...))
	return client
}

// beat sends the heartbeats of a consumer until stop is called. It calls ready before each heartbeat to check the
// consumer's API server.
func beat(t *testing.T, id string, client kubernetes.Interface, ready func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		heartbeat.Run(ctx, heartbeat.Options{ClusterID: id, Leases: client.CoordinationV1().Leases(wire.TenantNamespace(id)), Ready: ready, Interval: time.Second, Clock: clock.RealClock{}})
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func alwaysReady(context.Context) error { return nil }

// renewed returns the resourceVersion of the Lease in a tenant namespace.
func renewed(t *testing.T, tenant string) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	provider.Get(t, lease, tenant, wire.HeartbeatLease)
	return lease.ResourceVersion
}

func conditionIn(conditions []core.Condition, kind core.ConditionType) core.Condition {
	for _, condition := range conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return core.Condition{Status: core.ConditionStatusNone}
}

// await waits until a condition of the ForeignCluster has the status and the reason.
func await(t *testing.T, in *controllertest.Cluster, id string, kind core.ConditionType, status core.ConditionStatus, reason string) *core.ForeignCluster {
	t.Helper()
	cluster := &core.ForeignCluster{}
	controllertest.Eventually(t, fmt.Sprintf("%s of ForeignCluster %s to be %s, %s", kind, id, status, reason), func() error {
		if err := in.Client.Get(t.Context(), types.NamespacedName{Name: id}, cluster); err != nil {
			return err
		}
		if got := conditionIn(cluster.Status.Conditions, kind); got.Status != status || got.Reason != reason {
			return fmt.Errorf("it is %s, %s (%s)", got.Status, got.Reason, got.Message)
		}
		return nil
	})
	return cluster
}

// TestAConsumerIsKnownByItsHeartbeat checks that the state of an unreachable consumer is determined by its heartbeat,
// which stops when the consumer's API server fails, not only when its virtual kubelet does. A restart of the provider's
// controllers does not change the state.
func TestAConsumerIsKnownByItsHeartbeat(t *testing.T) {
	namespace := tenant(t, &provider, "rome")
	first := provider.StartManager(t)
	cluster := await(t, &provider, "rome", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
	if cluster.Labels[wire.RemoteClusterIDLabel] != "rome" || cluster.Status.TenantNamespace.Local != namespace.Name || cluster.Status.ObservedGeneration == 0 {
		t.Errorf("the ForeignCluster is %+v", cluster)
	}
	if got := core.ConditionOf(cluster.Status.Conditions, core.APIServerStatusCondition); got != core.ConditionStatusNone {
		t.Errorf("without a heartbeat the API server is %s", got)
	}

	client := as(t, "rome")
	stop := beat(t, "rome", client, alwaysReady)
	cluster = await(t, &provider, "rome", core.APIServerStatusCondition, core.ConditionStatusEstablished, "HeartbeatReceived")
	if cluster.Status.Role != core.ConsumerRole || first.Metric(t, "refract_foreign_cluster_up", "peer", "rome", "check", "api_server") != 1 {
		t.Errorf("the role is %s", cluster.Status.Role)
	}
	first.Stop(t)
	second := provider.StartManager(t)
	for range 2 { // the second manager needs two heartbeats, because the first Lease that it reads may be old
		before := renewed(t, namespace.Name)
		controllertest.Eventually(t, "the next heartbeat", func() error {
			if renewed(t, namespace.Name) == before {
				return fmt.Errorf("the Lease is still %s", before)
			}
			return nil
		})
	}
	controllertest.Eventually(t, "the second manager to know the cluster", func() error {
		if second.Metric(t, "refract_foreign_cluster_up", "peer", "rome", "check", "api_server") != 1 {
			return fmt.Errorf("its metric is missing")
		}
		return nil
	})
	// One write is permitted, because the status contains the minute of the last heartbeat, which may have changed.
	if writes := second.Writes.About("foreignclusters"); len(writes) > 1 {
		t.Errorf("after a restart the writes were %q", writes)
	}

	stop()
	beat(t, "rome", client, func(context.Context) error { return fmt.Errorf("etcd is away") })
	await(t, &provider, "rome", core.APIServerStatusCondition, core.ConditionStatusError, "HeartbeatLost")
	if second.Metric(t, "refract_foreign_cluster_up", "peer", "rome", "check", "api_server") != 0 {
		t.Error("the metric says that the API server is up")
	}
	beat(t, "rome", client, alwaysReady)
	await(t, &provider, "rome", core.APIServerStatusCondition, core.ConditionStatusEstablished, "HeartbeatReceived")
}

// TestAHeartbeatIsLostWhileNobodyListens checks that the consumer counts as lost if its heartbeats stop while no
// controller is running.
func TestAHeartbeatIsLostWhileNobodyListens(t *testing.T) {
	tenant(t, &provider, "turin")
	first := provider.StartManager(t)
	client := as(t, "turin")
	stop := beat(t, "turin", client, alwaysReady)
	await(t, &provider, "turin", core.APIServerStatusCondition, core.ConditionStatusEstablished, "HeartbeatReceived")
	first.Stop(t)
	stop()
	provider.StartManager(t)
	await(t, &provider, "turin", core.APIServerStatusCondition, core.ConditionStatusError, "HeartbeatLost")
}

// TestAnnotatingALeaseIsNoHeartbeat checks that adding an annotation to a Lease does not count as a heartbeat. The
// Lease of a lost consumer may be older than the annotation with the provider's ID.
func TestAnnotatingALeaseIsNoHeartbeat(t *testing.T) {
	namespace := tenant(t, &provider, "siena")
	renewed := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: wire.HeartbeatLease},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("siena"), LeaseDurationSeconds: ptr.To[int32](5), RenewTime: &renewed}}
	provider.Create(t, lease)
	provider.StartManager(t)
	cluster := &core.ForeignCluster{}
	controllertest.Eventually(t, "the heartbeat to be lost", func() error {
		if err := provider.Client.Get(t.Context(), types.NamespacedName{Name: "siena"}, cluster); err != nil {
			return err
		}
		got := conditionIn(cluster.Status.Conditions, core.APIServerStatusCondition)
		require.NotEqual(t, core.ConditionStatusEstablished, got.Status, "%s: %s", got.Reason, got.Message)
		if got.Reason != "HeartbeatLost" {
			return fmt.Errorf("it is %s, %s (%s)", got.Status, got.Reason, got.Message)
		}
		return nil
	})
	require.NoError(t, provider.Client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
	assert.Equal(t, "milan", lease.Annotations[wire.ClusterIDAnnotation])
}

// TestAConsumerWritesNoOtherLease checks that a consumer can renew its heartbeat, but cannot read or write any other
// Lease.
func TestAConsumerWritesNoOtherLease(t *testing.T) {
	tenant(t, &provider, "bari")
	client := as(t, "bari")
	beat(t, "bari", client, alwaysReady)()
	lease, err := client.CoordinationV1().Leases(wire.TenantNamespace("bari")).Get(t.Context(), wire.HeartbeatLease, metav1.GetOptions{})
	if err == nil {
		t.Errorf("a consumer can read %s, which it need not", lease.Name)
	}
	_, err = client.CoordinationV1().Leases(wire.TenantNamespace("bari")).Patch(t.Context(), "another", types.MergePatchType, []byte(`{"spec":{"holderIdentity":"me"}}`), metav1.PatchOptions{})
	assert.ErrorContains(t, err, "forbidden")
}

// providerOf joins the consumer with the provider through a connection that the test can interrupt.
func providerOf(t *testing.T, id string) (*proxy.Cable, *corev1.Secret) {
	t.Helper()
	namespace := tenant(t, &consumer, id)
	address, err := url.Parse(provider.Config().Host)
	require.NoError(t, err)
	cable := proxy.NewCable(t, address.Host)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "kubeconfig", Annotations: map[string]string{wire.RemoteTenantNamespaceAnnotation: "tenant-over-there"}},
		Data:       map[string][]byte{wire.KubeconfigSecretKey: kubeconfig(t, &provider, "https://"+cable.Address())},
	}
	consumer.Create(t, secret)
	manager := rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, consumer.Grant(t.Context(), manager.Provider(namespace.Name, secret.Name)...))
	yes := true
	consumer.Create(t, &offloading.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: id, Labels: map[string]string{wire.RemoteClusterIDLabel: id}},
		Spec: offloading.VirtualNodeSpec{ClusterID: core.ClusterID(id), CreateNode: &yes, KubeconfigSecretRef: &corev1.LocalObjectReference{Name: secret.Name},
			ResourceQuota: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}},
	})
	return cable, secret
}

// kubeconfig returns a kubeconfig for a cluster with server as the address.
func kubeconfig(t *testing.T, of *controllertest.Cluster, server string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, of.KubeconfigFor(path, "prober", "system:authenticated"))
	config, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server = server
	}
	text, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return text
}

// TestAProviderIsAsked checks that the API server of a provider is probed. A single lost response is ignored. An
// interrupted connection and its recovery are detected.
func TestAProviderIsAsked(t *testing.T) {
	cable, _ := providerOf(t, "milan")
	m := consumer.StartManager(t)
	cluster := await(t, &consumer, "milan", core.APIServerStatusCondition, core.ConditionStatusEstablished, "Answers")
	if cluster.Status.Role != core.ProviderRole || cluster.Status.TenantNamespace.Remote != "tenant-over-there" ||
		cluster.Status.APIServerURL != "https://"+cable.Address() || cluster.Status.APIServerLatency == nil || !cluster.Status.Modules.Offloading.Enabled {
		t.Errorf("status is %+v", cluster.Status)
	}
	if latency := m.Metric(t, "refract_foreign_cluster_api_server_latency_seconds", "peer", "milan"); latency <= 0 {
		t.Errorf("the latency is %f", latency)
	}
	if expires := m.Metric(t, "refract_foreign_cluster_credentials_expiration_timestamp_seconds", "peer", "milan"); expires <= float64(time.Now().Unix()) {
		t.Errorf("the credentials expire at %f", expires)
	}
	cable.SetCut(true)
	cluster = await(t, &consumer, "milan", core.APIServerStatusCondition, core.ConditionStatusError, "DoesNotAnswer")
	if message := conditionIn(cluster.Status.Conditions, core.APIServerStatusCondition).Message; !strings.Contains(message, "does not answer") {
		t.Errorf("the message is %q", message)
	}
	cable.SetCut(false)
	await(t, &consumer, "milan", core.APIServerStatusCondition, core.ConditionStatusEstablished, "Answers")

	// The controller reads the state of the virtual node from its Node.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: "milan"}}}
	consumer.Create(t, node)
	consumer.PatchStatus(t, node, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	controllertest.Eventually(t, "the virtual node to be ready", func() error {
		consumer.Get(t, cluster, "", "milan")
		if got := core.ConditionOf(cluster.Status.Modules.Offloading.Conditions, core.OffloadingNodeStatusCondition); got != core.ConditionStatusReady {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// TestAConsumerIsAskedWhereItCanBe checks that a provider with a kubeconfig for a consumer probes the consumer's API
// server. It ignores the heartbeat, because a heartbeat only shows what the consumer claims.
func TestAConsumerIsAskedWhereItCanBe(t *testing.T) {
	namespace := tenant(t, &provider, "genoa")
	beat(t, "genoa", as(t, "genoa"), alwaysReady)
	manager := rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, provider.Grant(t.Context(), manager.Probe(namespace.Name)...))
	address, err := url.Parse(consumer.Config().Host)
	require.NoError(t, err)
	cable := proxy.NewCable(t, address.Host)
	provider.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: wire.ProbeSecret},
		Data: map[string][]byte{wire.KubeconfigSecretKey: kubeconfig(t, &consumer, "https://"+cable.Address())}})
	provider.StartManager(t)
	cluster := await(t, &provider, "genoa", core.APIServerStatusCondition, core.ConditionStatusEstablished, "Answers")
	if cluster.Status.Role != core.ConsumerRole {
		t.Errorf("the role is %s", cluster.Status.Role)
	}
	cable.SetCut(true)
	await(t, &provider, "genoa", core.APIServerStatusCondition, core.ConditionStatusError, "DoesNotAnswer")
}

// TestAKubeconfigIsReplaced checks that an unusable kubeconfig is reported with its Secret, and that a new one is used
// without a restart.
func TestAKubeconfigIsReplaced(t *testing.T) {
	_, secret := providerOf(t, "pisa")
	usable := secret.Data[wire.KubeconfigSecretKey]
	consumer.Patch(t, secret, `{"data":{"kubeconfig":"bm90aGluZw=="}}`)
	consumer.StartManager(t)
	cluster := await(t, &consumer, "pisa", core.APIServerStatusCondition, core.ConditionStatusError, "InvalidKubeconfig")
	if message := conditionIn(cluster.Status.Conditions, core.APIServerStatusCondition).Message; !strings.Contains(message, "Secret liqo-tenant-pisa/kubeconfig, data.kubeconfig: ") {
		t.Errorf("the message is %q", message)
	}
	secret.Data[wire.KubeconfigSecretKey] = usable
	require.NoError(t, consumer.Client.Update(t.Context(), secret))
	await(t, &consumer, "pisa", core.APIServerStatusCondition, core.ConditionStatusEstablished, "Answers")

	require.NoError(t, consumer.Client.Delete(t.Context(), secret))
	cluster = await(t, &consumer, "pisa", core.APIServerStatusCondition, core.ConditionStatusError, "InvalidKubeconfig")
	if message := conditionIn(cluster.Status.Conditions, core.APIServerStatusCondition).Message; !strings.Contains(message, "Secret liqo-tenant-pisa/kubeconfig does not exist: ") {
		t.Errorf("the message is %q", message)
	}
}

// TestTheNetworkIsChecked checks that the network state is read from an annotation, or from Liqo's Connections if they
// are recent.
func TestTheNetworkIsChecked(t *testing.T) {
	tenant(t, &consumer, "lucca")
	hand := &controllertest.ShiftedClock{}
	withClock := func(o *controllers.Options) { o.Clock = hand }
	m := consumer.StartManager(t, withClock)
	cluster := await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
	annotate := func(value string) {
		consumer.Patch(t, cluster, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, wire.NetworkStatusAnnotation, value))
	}
	annotate(`"Established"`)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusEstablished, "SetByAnnotation")
	annotate(`"Error"`)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusError, "SetByAnnotation")
	annotate(`"perhaps"`)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusError, "InvalidAnnotation")
	annotate(`null`)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")

	// If the annotation contains an address on the provider, this address is probed.
	probe := func(value string) {
		consumer.Patch(t, cluster, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, wire.NetworkProbeAnnotation, value))
	}
	cable := proxy.NewCable(t, strings.TrimPrefix(provider.Config().Host, "https://"))
	probe(fmt.Sprintf("%q", "https://"+cable.Address()))
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusEstablished, "ProbeAnswered")
	cable.SetCut(true)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusError, "ProbeFailed")
	cable.SetCut(false)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusEstablished, "ProbeAnswered")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	probe(fmt.Sprintf("%q", "tcp://"+listener.Addr().String()))
	controllertest.Eventually(t, "the other address to be asked", func() error {
		consumer.Get(t, cluster, "", "lucca")
		if message := conditionIn(cluster.Status.Conditions, core.NetworkStatusCondition).Message; message != "tcp://"+listener.Addr().String()+" answers" {
			return fmt.Errorf("the message is %q", message)
		}
		return nil
	})
	// After a restart, the conditions do not change until the first probe has completed.
	before := conditionIn(cluster.Status.Conditions, core.NetworkStatusCondition)
	m.Stop(t)
	m = consumer.StartManager(t, withClock)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusEstablished, "ProbeAnswered")
	for _, write := range m.Writes.About("foreignclusters", "lucca") {
		t.Errorf("the restart has written %s", write)
	}
	consumer.Get(t, cluster, "", "lucca")
	assert.Equal(t, before, conditionIn(cluster.Status.Conditions, core.NetworkStatusCondition))
	require.NoError(t, listener.Close())
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusError, "ProbeFailed")
	for _, invalid := range []string{"gateway", "tcp://gateway", "ftp://gateway/file"} {
		probe(fmt.Sprintf("%q", invalid))
		invalidProbe := await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusError, "InvalidAnnotation")
		assert.Contains(t, conditionIn(invalidProbe.Status.Conditions, core.NetworkStatusCondition).Message, "use tcp://HOST:PORT, or an http or https URL")
	}
	probe("null")
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")

	// The condition has the state that the network provider has written to the PeerNetwork.
	declared := &plugins.PeerNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("lucca"), Name: "lucca"}, Spec: plugins.PeerNetworkSpec{ClusterID: "lucca"}}
	consumer.Create(t, declared)
	say := func(connected, checked string) {
		consumer.PatchStatus(t, declared, fmt.Sprintf(`{"status":{"checkedAt":%s,"conditions":[{"type":"Connected","status":%q,"reason":"Handshake","message":"two seconds ago","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, checked, connected))
	}
	say("True", "null")
	said := await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusEstablished, "SetByPeerNetwork")
	assert.Equal(t, "PeerNetwork liqo-tenant-lucca/lucca: two seconds ago", conditionIn(said.Status.Conditions, core.NetworkStatusCondition).Message)
	say("True", `"2026-01-01T00:00:00Z"`)
	awaitStale(t, hand, "lucca")
	say("True", `"2026-01-01T00:00:10Z"`)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusEstablished, "SetByPeerNetwork")
	say("Unknown", "null")
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusPending, "SetByPeerNetwork")
	say("False", "null")
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusError, "SetByPeerNetwork")
	consumer.Patch(t, declared, `{"spec":{"mode":"None"}}`)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusNone, "NoNetwork")
	consumer.Delete(t, declared)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")

	connection := connectionOf("lucca", "Connected", time.Now())
	consumer.Create(t, connection)
	cluster = await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusEstablished, "ConnectionEstablished")
	if !cluster.Status.Modules.Networking.Enabled || core.ConditionOf(cluster.Status.Modules.Networking.Conditions, core.NetworkConnectionStatusCondition) != core.ConditionStatusEstablished {
		t.Errorf("the network module is %+v", cluster.Status.Modules.Networking)
	}
	consumer.Patch(t, connection, `{"status":{"latency":{"timestamp":"2026-01-01T00:00:00Z"}}}`)
	awaitStale(t, hand, "lucca")
	// After a restart, an old Connection does not count as new.
	m.Stop(t)
	m = consumer.StartManager(t, withClock)
	tenant(t, &consumer, "massa")
	await(t, &consumer, "massa", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked") // lucca was handled before
	consumer.Patch(t, connection, `{"status":{"value":"Connecting"}}`)
	await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusPending, "ConnectionNotEstablished")
	assert.Len(t, m.Writes.About("foreignclusters", "lucca"), 1)
	consumer.Delete(t, connection)
	cluster = await(t, &consumer, "lucca", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
	if cluster.Status.Modules.Networking.Enabled {
		t.Errorf("the network module is %+v without a Connection", cluster.Status.Modules.Networking)
	}
}

// TestAKubeconfigOfTheWrongClusterIsRefused checks that a kubeconfig for the wrong cluster is refused, because the ID
// of this cluster differs from the expected one.
func TestAKubeconfigOfTheWrongClusterIsRefused(t *testing.T) {
	tenant(t, &provider, "arezzo")
	stop := beat(t, "arezzo", as(t, "arezzo"), alwaysReady)
	provider.StartManager(t)
	lease := &coordinationv1.Lease{}
	controllertest.Eventually(t, "the provider to say who it is", func() error {
		if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: wire.TenantNamespace("arezzo"), Name: wire.HeartbeatLease}, lease); err != nil {
			return err
		}
		if got := lease.Annotations[wire.ClusterIDAnnotation]; got != "milan" {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
	stop()
	_, secret := providerOf(t, "perugia") // the kubeconfig actually leads to milan
	prober := rbac.Consumer{Subject: rbac.User("prober")}
	require.NoError(t, provider.Grant(t.Context(), prober.TenantNamespace(wire.TenantNamespace("arezzo"))))
	consumer.Patch(t, secret, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wire.RemoteTenantNamespaceAnnotation, wire.TenantNamespace("arezzo")))
	consumer.StartManager(t)
	cluster := await(t, &consumer, "perugia", core.APIServerStatusCondition, core.ConditionStatusError, "WrongCluster")
	assert.Equal(t, `The API server belongs to cluster "milan", not "perugia": replace the kubeconfig with one for "perugia"; no requests are sent until then`,
		conditionIn(cluster.Status.Conditions, core.APIServerStatusCondition).Message)
}

// TestTwoTenantNamespacesOfOneCluster checks that only one tenant namespace of a cluster is used, and that additional
// ones are reported.
func TestTwoTenantNamespacesOfOneCluster(t *testing.T) {
	tenant(t, &consumer, "pavia")
	consumer.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "a-second-one", Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "pavia"}}})
	consumer.StartManager(t)
	cluster := await(t, &consumer, "pavia", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
	assert.Equal(t, wire.TenantNamespace("pavia"), cluster.Status.TenantNamespace.Local)
	event := consumer.AwaitEvent(t, "default", "ForeignCluster", "pavia", "DuplicateTenantNamespace")
	assert.Contains(t, event.Note, "using liqo-tenant-pavia, ignoring a-second-one")
}

// TestPeerNetworksFollowConnections checks that the condition of a PeerNetwork for gateways follows their Connections,
// even if an annotation determines the state in the ForeignCluster. The condition of another network provider is kept.
func TestPeerNetworksFollowConnections(t *testing.T) {
	tenant(t, &consumer, "volterra")
	m := consumer.StartManager(t)
	cluster := await(t, &consumer, "volterra", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
	declared := &plugins.PeerNetwork{
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("volterra"), Name: "volterra"},
		Spec:       plugins.PeerNetworkSpec{ClusterID: "volterra", Mode: plugins.GatewayNetwork},
	}
	consumer.Create(t, declared)
	expect := func(status core.ConditionStatus, reason string, connected metav1.ConditionStatus, connectedReason string) {
		t.Helper()
		controllertest.Eventually(t, fmt.Sprintf("%s, %s and %s, %s", status, reason, connected, connectedReason), func() error {
			touch(t, "volterra")
			consumer.Get(t, cluster, "", "volterra")
			consumer.Get(t, declared, declared.Namespace, "volterra")
			network := conditionIn(cluster.Status.Conditions, core.NetworkStatusCondition)
			summary := meta.FindStatusCondition(declared.Status.Conditions, plugins.ConnectedCondition)
			if network.Status != status || network.Reason != reason || summary == nil || summary.Status != connected || summary.Reason != connectedReason {
				return fmt.Errorf("they are %+v and %+v", network, summary)
			}
			return nil
		})
	}
	connection := connectionOf("volterra", "Connecting", time.Now())
	consumer.Create(t, connection)
	expect(core.ConditionStatusPending, "ConnectionNotEstablished", metav1.ConditionUnknown, "ConnectionNotEstablished")
	consumer.Patch(t, connection, `{"status":{"value":"Connected"}}`)
	expect(core.ConditionStatusEstablished, "ConnectionEstablished", metav1.ConditionTrue, "ConnectionEstablished")
	assert.True(t, cluster.Status.Modules.Networking.Enabled)
	consumer.Patch(t, cluster, fmt.Sprintf(`{"metadata":{"annotations":{%q:"Established"}}}`, wire.NetworkStatusAnnotation))
	consumer.Patch(t, connection, `{"status":{"value":"Error"}}`)
	expect(core.ConditionStatusEstablished, "SetByAnnotation", metav1.ConditionFalse, "ConnectionNotEstablished")
	consumer.Patch(t, cluster, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, wire.NetworkStatusAnnotation))
	expect(core.ConditionStatusPending, "ConnectionNotEstablished", metav1.ConditionFalse, "ConnectionNotEstablished")
	consumer.Delete(t, connection)
	expect(core.ConditionStatusPending, "SetByPeerNetwork", metav1.ConditionUnknown, "ConnectionNotEstablished")
	assert.False(t, cluster.Status.Modules.Networking.Enabled)
	assert.Len(t, m.Writes.About("peernetworks", "volterra"), 4, "a write for each change")

	consumer.PatchStatus(t, declared, `{"status":{"conditions":[{"type":"Connected","status":"False","reason":"Handshake","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	consumer.Create(t, connectionOf("volterra", "Connected", time.Now()))
	expect(core.ConditionStatusError, "SetByPeerNetwork", metav1.ConditionFalse, "Handshake")
	assert.Len(t, m.Writes.About("peernetworks", "volterra"), 4)
}

// touch makes the controller read the network of a cluster again, even if no watch has reported a change.
func touch(t *testing.T, id string) {
	t.Helper()
	consumer.Patch(t, &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}},
		fmt.Sprintf(`{"metadata":{"annotations":{"test/touched":"%d"}}}`, time.Now().UnixNano()))
}

// awaitStale sets the clock forward until the measurement of a network was not refreshed for too long.
func awaitStale(t *testing.T, c *controllertest.ShiftedClock, id string) {
	t.Helper()
	begun := c.Now()
	controllertest.Eventually(t, "the network of "+id+" to be down", func() error {
		cluster := &core.ForeignCluster{}
		consumer.Get(t, cluster, "", id)
		if known := conditionIn(cluster.Status.Conditions, core.NetworkStatusCondition); known.Reason != "ConnectionNotRefreshed" {
			c.Shift(5 * time.Second)
			touch(t, id)
			return fmt.Errorf("it is %s, %s", known.Status, known.Reason)
		}
		return nil
	})
	assert.Greater(t, c.Since(begun), time.Minute)
}

func connectionOf(id, value string, refreshed time.Time) *unstructured.Unstructured {
	connection := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.liqo.io/v1beta1", "kind": "Connection",
		"status": map[string]any{"value": value, "latency": map[string]any{"value": "1ms", "timestamp": refreshed.UTC().Format(time.RFC3339)}},
	}}
	connection.SetName("gateway")
	connection.SetNamespace(wire.TenantNamespace(id))
	connection.SetLabels(map[string]string{wire.RemoteClusterIDLabel: id})
	return connection
}

// TestOtherForeignClustersAreLeftAlone checks that the ForeignCluster of a cluster that is not a peer is left
// unchanged, because another implementation may manage it.
func TestOtherForeignClustersAreLeftAlone(t *testing.T) {
	cluster := &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}, Spec: core.ForeignClusterSpec{ClusterID: "stranger"}}
	consumer.Create(t, cluster)
	m := consumer.StartManager(t)
	tenant(t, &consumer, "siena")
	await(t, &consumer, "siena", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
	if writes := m.Writes.About("foreignclusters", "stranger"); len(writes) > 0 {
		t.Errorf("the writes were %q", writes)
	}

	// A ForeignCluster that is deleted during a peering is recreated.
	siena := &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "siena"}}
	consumer.Delete(t, siena)
	await(t, &consumer, "siena", core.NetworkStatusCondition, core.ConditionStatusNone, "NotChecked")
}
