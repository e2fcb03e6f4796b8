// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/charts"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/release"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// certificate returns a certificate that expires at the given time, and its PEM form.
func certificate(t *testing.T, until time.Time) (*x509.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: now.Add(-365 * 24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return parsed, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// cilium returns the settings of Cilium that decide whether packets of pods pass the rules of the node.
func cilium(replacesProxy, masquerades, legacyRouting string) *corev1.ConfigMap {
	return &corev1.ConfigMap{Data: map[string]string{
		"kube-proxy-replacement": replacesProxy, "enable-bpf-masquerade": masquerades, "enable-host-legacy-routing": legacyRouting,
	}}
}

func foreignCluster(conditions ...core.Condition) *core.ForeignCluster {
	return &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: core.ForeignClusterSpec{ClusterID: "milan"},
		Status: core.ForeignClusterStatus{Role: core.ProviderRole, Conditions: conditions}}
}

func node(unschedulable bool, conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1.NodeSpec{Unschedulable: unschedulable}, Status: corev1.NodeStatus{Conditions: conditions}}
}

func kubeconfig(credentials string) *corev1.Secret {
	return &corev1.Secret{Data: map[string][]byte{wire.KubeconfigSecretKey: fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: milan
clusters: [{name: milan, cluster: {server: "https://milan.example.com"}}]
contexts: [{name: milan, context: {cluster: milan, user: rome}}]
users: [{name: rome, user: {token: %q}}]`, credentials)}}
}

// certified returns the Secret that refractctl peer --credentials=certificate creates, with a certificate whose
// lifetime is 90 days.
func certified(t *testing.T, until time.Time, renewed bool) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rome", Organization: []string{"rome"}}, NotBefore: until.AddDate(0, 0, -90), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	secret := kubeconfig("")
	secret.Labels = map[string]string{"app.kubernetes.io/managed-by": "refractctl"}
	if renewed {
		secret.Annotations = map[string]string{wire.RenewedAnnotation: "true"}
	}
	encode := base64.StdEncoding.EncodeToString
	text := strings.Replace(string(secret.Data[wire.KubeconfigSecretKey]), `{token: ""}`,
		fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s}", encode(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), encode(keyPEM)), 1)
	secret.Data[wire.KubeconfigSecretKey] = []byte(text)
	return secret
}

// token returns a token with a lifetime of 90 days that expires at the given time.
func token(until time.Time) string {
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d}`, until.Add(-90*24*time.Hour).Unix(), until.Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func peerNetwork(mode plugins.NetworkMode, checked *metav1.Time, conditions ...metav1.Condition) *plugins.PeerNetwork {
	return &plugins.PeerNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
		Spec:   plugins.PeerNetworkSpec{ClusterID: "milan", Mode: mode, Local: plugins.NetworkSide{PodCIDRs: []plugins.CIDR{"10.1.0.0/16"}}, Remote: plugins.NetworkSide{PodCIDRs: []plugins.CIDR{"10.2.0.0/16"}}},
		Status: plugins.PeerNetworkStatus{Conditions: conditions, CheckedAt: checked}}
}

func connected(status metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: plugins.ConnectedCondition, Status: status, Reason: "Handshake", Message: "no answer from the gateway"}
}

func crd(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "quotas.offloading.liqo.io"}, "spec": spec}}
}

// TestFindings checks the finding for each of many states of the cluster.
func TestFindings(t *testing.T) {
	t.Parallel()
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: offloading.VirtualNodeSpec{ClusterID: "milan"}}
	kubelet := func(status offloading.VirtualNodeConditionStatus, reason, message string) *offloading.VirtualNode {
		changed := vn.DeepCopy()
		changed.Status.Conditions = []offloading.VirtualNodeCondition{{Type: offloading.VirtualKubeletConditionType, Status: status, Reason: reason, Message: message}}
		return changed
	}
	inState := func(kind offloading.VirtualNodeConditionType, status offloading.VirtualNodeConditionStatus) *offloading.VirtualNode {
		changed := vn.DeepCopy()
		changed.Status.Conditions = []offloading.VirtualNodeCondition{{Type: kind, Status: status, Reason: string(status), Message: "something is left"}}
		return changed
	}
	secret := client.ObjectKey{Namespace: "liqo-tenant-milan", Name: "kubeconfig"}
	installed := &release.Installation{Name: "refract", Namespace: "liqo"}
	expired, expiredPEM := certificate(t, now.Add(-time.Hour))
	expiring, expiringPEM := certificate(t, now.Add(time.Hour))
	fresh, freshPEM := certificate(t, now.Add(300*24*time.Hour))
	webhook := func(bundle []byte) *admissionregistrationv1.MutatingWebhook {
		return &admissionregistrationv1.MutatingWebhook{Name: "pods.refract.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: bundle}}
	}
	csr := func(age time.Duration, change func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
		request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1", CreationTimestamp: metav1.NewTime(now.Add(-age))},
			Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeletServingSignerName}}
		change(request)
		return request
	}
	condition := func(kind certificatesv1.RequestConditionType) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: corev1.ConditionTrue, Message: "by policy"}}
		}
	}
	versioned := func(provider string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{wire.ProviderVersionLabel: provider}}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.3"}}}
	}
	withPlugins := func(status corev1.ConditionStatus, reason, message string) *corev1.Node {
		n := versioned("")
		n.Status.Conditions = []corev1.NodeCondition{{Type: folderplugins.ConditionType, Status: status, Reason: reason, Message: message}}
		return n
	}
	is := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "see there"}
	}
	declaredPlugin := func(active string, conditions ...metav1.Condition) *plugins.ReflectionPlugin {
		return &plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: "strip"},
			Status: plugins.ReflectionPluginStatus{ActiveRevision: active, Nodes: "1/1", Conditions: conditions}}
	}
	extended := func(phase offloading.OffloadingPhaseType) *offloading.NamespaceOffloading {
		return &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}, Status: offloading.NamespaceOffloadingStatus{OffloadingPhase: phase, RemoteNamespaceName: "shop-rome"}}
	}
	overlap := peerNetwork(plugins.ReachableNetwork, nil)
	overlap.Spec.Remote = overlap.Spec.Local
	remapped := overlap.DeepCopy()
	remapped.Spec.Mode = plugins.GatewayNetwork
	gateway := func(change func(*gateways.State)) *gateways.State {
		s := &gateways.State{Peer: "milan", Role: networking.ServerConnection, Gateway: "GatewayServer milan", Endpoint: "192.0.2.1, UDP port 51840", Pods: "2/2", Value: networking.Connected, Latency: "2ms", HasPublicKey: true}
		change(s)
		return s
	}
	stale, recent := metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now.Add(-time.Second))
	spec := map[string]any{"scope": "Namespaced", "versions": []any{map[string]any{"name": "v1beta1", "served": true, "maxLength": int64(63)}}}
	installedSpec := map[string]any{"scope": "Namespaced", "conversion": map[string]any{"strategy": "None"}, "versions": []any{map[string]any{"name": "v1beta1", "served": true, "maxLength": float64(63)}}}
	older := map[string]any{"scope": "Namespaced", "versions": []any{map[string]any{"name": "v1beta1", "served": true}}}

	for name, test := range map[string]struct {
		look func(*Examination)
		want string // the level, the subject, and some words of the message; "" means no finding
	}{
		"gateway connected": {func(p *Examination) { p.checkGateway(gateway(func(*gateways.State) {})) }, "OK|gateway to milan|connected, latency 2ms"},
		"gateway without a standby": {func(p *Examination) { p.checkGateway(gateway(func(s *gateways.State) { s.Pods = "1/2" })) },
			"Warning|gateway to milan|connected, but only 1 of 2 pods are available"},
		"gateway without pods": {func(p *Examination) { p.checkGateway(gateway(func(s *gateways.State) { s.Pods = "0/2" })) },
			"Error|gateway to milan|GatewayServer milan: no pod is available, of 2: see kubectl -n liqo-tenant-milan describe"},
		"gateway that refreshes its Connection": {func(p *Examination) {
			p.checkGateway(gateway(func(s *gateways.State) { s.CheckedAt = &recent }))
		}, "OK|gateway to milan|connected, latency 2ms"},
		"gateway that does not refresh its Connection": {func(p *Examination) {
			p.checkGateway(gateway(func(s *gateways.State) { s.CheckedAt = &stale }))
		}, "Error|gateway to milan|GatewayServer milan: its Connection is Connected, but was last refreshed at 2026-05-01T11:00:00Z"},
		"gateway with a problem": {func(p *Examination) {
			p.checkGateway(gateway(func(s *gateways.State) { s.Value, s.Problem = "", "waiting for an address of Service gw-milan" }))
		}, "Error|gateway to milan|GatewayServer milan: waiting for an address of Service gw-milan"},
		"gateway without a key": {func(p *Examination) {
			p.checkGateway(gateway(func(s *gateways.State) { s.Value, s.HasPublicKey = networking.Connecting, false }))
		}, "Error|gateway to milan|GatewayServer milan: the PublicKey of milan is missing: run refractctl network connect"},
		"gateway that is blocked": {func(p *Examination) {
			p.checkGateway(gateway(func(s *gateways.State) { s.Value = networking.Connecting }))
		}, "Error|gateway to milan|GatewayServer milan is not connected: the client must reach the server at 192.0.2.1, UDP port 51840, so check firewalls"},
		"Cilium with host routing by eBPF": {func(p *Examination) { p.describeCilium(cilium("true", "true", "")) },
			"Warning|ConfigMap kube-system/cilium-config|Cilium forwards packets of pods with eBPF, past the routes of the agents, so that pods may not reach peers: set the value bpf.hostLegacyRouting=true of Cilium's chart, and restart its agents"},
		"node in a range of a peer": {func(p *Examination) {
			node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.61.7.7"}}}}
			peer := networking.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Labels: map[string]string{wire.RemoteClusterIDLabel: "milan"}}}
			peer.Status.Remote = &networking.ClusterConfig{CIDR: networking.ClusterConfigCIDR{Pod: []networking.CIDR{"10.61.0.0/16"}}}
			p.findHiddenNodes([]corev1.Node{node}, []networking.Configuration{peer, {}})
		}, "Error|node late|its address 10.61.7.7 is in the range 10.61.0.0/16 of milan"},
		"Cilium with legacy host routing":      {func(p *Examination) { p.describeCilium(cilium("true", "true", "true")) }, ""},
		"Cilium beside kube-proxy":             {func(p *Examination) { p.describeCilium(cilium("false", "true", "")) }, ""},
		"Cilium with masquerading by iptables": {func(p *Examination) { p.describeCilium(cilium("strict", "", "")) }, ""},
		"no gateway": {func(p *Examination) { p.checkGateway(&gateways.State{Peer: "milan"}) },
			"Warning|gateway to milan|there is none, but the ranges of milan are reserved"},
		"agents that do not run": {func(p *Examination) {
			p.describeAgents(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "refract-gateway-agent"}, Status: appsv1.DaemonSetStatus{NumberReady: 1, DesiredNumberScheduled: 2}})
		}, "Error|DaemonSet liqo/refract-gateway-agent|agents are ready on 1 of 2 nodes"},
		"provider in error": {func(p *Examination) {
			p.checkCluster("ForeignCluster milan", foreignCluster(core.Condition{Type: core.APIServerStatusCondition, Status: core.ConditionStatusError, Reason: "APIServerUnreachable", Message: "check the firewall"}))
		}, "Error|ForeignCluster milan|APIServerStatus is APIServerUnreachable: check the firewall; check that cluster milan runs, and that the pods of this cluster reach its API server; if it is gone for good, run refractctl unpeer milan --force"},
		"provider pending": {func(p *Examination) {
			p.checkCluster("ForeignCluster milan", foreignCluster(core.Condition{Type: core.NetworkStatusCondition, Status: core.ConditionStatusPending, Reason: "Connecting", Message: "wait"}))
		}, "Warning|ForeignCluster milan|NetworkStatus is Connecting: wait; see kubectl -n liqo-tenant-milan get peernetworks, or the gateway of the network, and try it with refractctl network test"},
		"consumer in error": {func(p *Examination) {
			consumer := foreignCluster(core.Condition{Type: core.APIServerStatusCondition, Status: core.ConditionStatusError, Reason: "HeartbeatLost", Message: "no heartbeat"})
			consumer.Status.Role = core.ConsumerRole
			p.checkCluster("ForeignCluster milan", consumer)
		}, "Error|ForeignCluster milan|APIServerStatus is HeartbeatLost: no heartbeat; run refractctl doctor in cluster milan; if it is gone for good, revoke its access with refractctl delete peering-user milan"},
		"condition of others": {func(p *Examination) {
			p.checkCluster("ForeignCluster milan", foreignCluster(core.Condition{Type: "Other", Status: core.ConditionStatusError, Reason: "Broken", Message: "it is"}))
		}, "Other is Broken: it is; see kubectl describe foreigncluster milan"},
		"tenant in error": {func(p *Examination) {
			p.checkCluster("ForeignCluster milan", foreignCluster(core.Condition{Type: core.AuthTenantStatusCondition, Status: core.ConditionStatusError, Reason: "Broken", Message: "it is"}))
		}, "it is; see kubectl -n liqo-tenant-milan describe tenants.authentication.liqo.io,resourceslices.authentication.liqo.io"},
		"nodes in error": {func(p *Examination) {
			p.checkCluster("ForeignCluster milan", foreignCluster(core.Condition{Type: core.OffloadingNodeStatusCondition, Status: core.ConditionStatusError, Reason: "Broken", Message: "it is"}))
		}, "it is; see kubectl -n liqo-tenant-milan describe virtualnodes"},
		"provider not checked": {func(p *Examination) { p.checkCluster("ForeignCluster milan", foreignCluster()) }, "Warning|ForeignCluster milan|its API server is not checked: no heartbeat has arrived, and there is no kubeconfig for it. Check with refractctl doctor there that its virtual kubelet runs; if the peering is over, remove the rest of it with refractctl unpeer or refractctl delete peering-user milan"},
		"provider well": {func(p *Examination) {
			p.checkCluster("ForeignCluster milan", foreignCluster(core.Condition{Type: core.APIServerStatusCondition, Status: core.ConditionStatusEstablished}))
		}, "OK|ForeignCluster milan|Provider, reachable"},

		"virtual kubelet not running": {func(p *Examination) {
			p.checkVirtualNode(kubelet(offloading.CreatingConditionStatus, "DeploymentProgressing", "FailedCreate: exceeded quota"))
		}, "Warning|VirtualNode liqo-tenant-milan/milan|VirtualKubelet is DeploymentProgressing: FailedCreate: exceeded quota; see its pods with kubectl -n liqo-tenant-milan describe deployment,pods -l "},
		"virtual kubelet without template": {func(p *Examination) {
			p.checkVirtualNode(kubelet(offloading.NoneConditionStatus, "TemplateNotFound", "create the VkOptionsTemplate"))
		}, "Warning|VirtualNode liqo-tenant-milan/milan|VirtualKubelet is TemplateNotFound: create the VkOptionsTemplate; see its Events with kubectl -n liqo-tenant-milan describe virtualnode milan"},
		"virtual kubelet without account": {func(p *Examination) {
			p.checkVirtualNode(kubelet(offloading.NoneConditionStatus, "ServiceAccountNotFound", "run refractctl create virtualnode milan --provider=milan"))
		}, "Warning|VirtualNode liqo-tenant-milan/milan|VirtualKubelet is ServiceAccountNotFound: run refractctl create virtualnode milan --provider=milan; see its Events with kubectl -n liqo-tenant-milan describe virtualnode milan"},
		"virtual node draining": {func(p *Examination) {
			p.checkVirtualNode(inState(offloading.NodeConditionType, offloading.DrainingConditionStatus))
		}, "left; wait until it is drained, or stop that with refractctl uncordon virtualnode milan"},
		"virtual node deleted": {func(p *Examination) {
			p.checkVirtualNode(inState(offloading.NodeConditionType, offloading.DeletingConditionStatus))
		}, "left; wait until it is deleted, or see what it waits for with kubectl -n liqo-tenant-milan describe virtualnode milan"},
		"node name taken": {func(p *Examination) {
			p.checkVirtualNode(inState(offloading.NodeConditionType, offloading.NoneConditionStatus))
		}, "left; see its Events with kubectl -n liqo-tenant-milan describe virtualnode milan"},
		"virtual node well":   {func(p *Examination) { p.checkVirtualNode(vn) }, "OK|VirtualNode liqo-tenant-milan/milan|provider milan"},
		"node not registered": {func(p *Examination) { p.checkNode(vn, nil) }, "Error|node milan|it is not registered: see the Events with kubectl -n liqo-tenant-milan describe virtualnode milan"},
		"node without status": {func(p *Examination) { p.checkNode(vn, node(false)) }, "Error|node milan|its virtual kubelet stopped reporting"},
		"node unknown": {func(p *Examination) {
			p.checkNode(vn, node(false, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}))
		}, "Error|node milan|its virtual kubelet stopped reporting: see kubectl -n liqo-tenant-milan logs deployment/vk-milan"},
		"node not ready": {func(p *Examination) {
			p.checkNode(vn, node(false, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "ProviderUnreachable", Message: "timeout"}))
		}, "Error|node milan|not ready: ProviderUnreachable, timeout; check that the API server of cluster milan answers, with refractctl info milan, and see kubectl -n liqo-tenant-milan logs deployment/vk-milan"},
		"node without resources": {func(p *Examination) {
			p.checkNode(vn, node(false, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse}, corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}))
		}, "set cpu and memory in spec.resourceQuota.hard of VirtualNode liqo-tenant-milan/milan, or run refractctl peer with --cpu and --memory"},
		"node without network": {func(p *Examination) {
			p.checkNode(vn, node(false, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse}, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue}))
		}, "connect the pod networks of the clusters and try them with refractctl network test, or run refractctl peer with --network=none"},
		"node cordoned": {func(p *Examination) {
			p.checkNode(vn, node(true, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}))
		}, "Warning|node milan|ready, but cordoned: make it schedulable again with refractctl uncordon virtualnode milan"},
		"node ready": {func(p *Examination) {
			p.checkNode(vn, node(false, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}))
		}, "OK|node milan|ready"},
		"node with a broken folder plugin": {func(p *Examination) {
			p.checkNode(vn, node(false, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				corev1.NodeCondition{Type: folderplugins.ConditionType, Status: corev1.ConditionFalse, Reason: folderplugins.FailedReason, Message: "strip"}))
		}, "OK|node milan|ready\nWarning|node milan|the folder of its virtual kubelet has plugins that do not load. strip"},
		"folder plugins hold objects": {func(p *Examination) { p.checkFolderPlugins(withPlugins("False", "ObjectsHeld", "Not loaded: strip")) }, "Error|node milan|the folder of its virtual kubelet has plugins that do not load. Not loaded: strip"},
		"folder plugins fail":         {func(p *Examination) { p.checkFolderPlugins(withPlugins("False", "PluginsFailed", "Not loaded: strip")) }, "Warning|node milan|the folder of its virtual kubelet has plugins"},
		"folder plugins loaded":       {func(p *Examination) { p.checkFolderPlugins(withPlugins("True", "PluginsLoaded", "")) }, ""},

		"plugin of no controller": {func(p *Examination) { p.checkDeclaredPlugin(declaredPlugin("")) },
			"Warning|ReflectionPlugin strip|no controller has seen it: set plugins.enabled"},
		"plugin well": {func(p *Examination) {
			p.checkDeclaredPlugin(declaredPlugin("strip-1", is("Fetched", "True", "Fetched"), is("Ready", "True", "Active")))
		}, "OK|ReflectionPlugin strip|revision strip-1 is active on 1/1 virtual nodes"},
		"plugin that does not run": {func(p *Examination) {
			p.checkDeclaredPlugin(declaredPlugin("strip-1", is("Ready", "False", "Failed")))
		}, "Error|ReflectionPlugin strip|not ready: Failed, see there; see refractctl plugin status strip"},
		"plugin that is refused": {func(p *Examination) {
			p.checkDeclaredPlugin(declaredPlugin("", is("Fetched", "False", "NotFound"), is("Ready", "False", "NotFound")))
		}, "Warning|ReflectionPlugin strip|Fetched is False, NotFound: see there"},
		"plugin whose change waits": {func(p *Examination) {
			waits := is("Rehearsed", "False", "WaitingForApproval")
			p.checkDeclaredPlugin(declaredPlugin("strip-1", waits, is("Ready", "True", "Active")))
		}, "Warning|ReflectionPlugin strip|Rehearsed is False, WaitingForApproval: see there"},
		"plugin that is new": {func(p *Examination) {
			p.checkDeclaredPlugin(declaredPlugin("", is("Rehearsed", "Unknown", "Rehearsing"), is("Ready", "False", "Rehearsing")))
		}, "Warning|ReflectionPlugin strip|no revision is active: Rehearsing, see there"},

		"provider older":   {func(p *Examination) { p.providerVersion(versioned("v1.35.2_k3s1")) }, "Warning|node milan|the provider runs Kubernetes v1.35.2_k3s1, this cluster v1.36.3: the provider drops fields"},
		"provider as new":  {func(p *Examination) { p.providerVersion(versioned("v1.36.0")) }, "OK|node milan|the provider runs Kubernetes v1.36.0"},
		"provider unknown": {func(p *Examination) { p.providerVersion(versioned("")) }, ""},

		"credentials missing":       {func(p *Examination) { p.checkAccess(vn, secret, nil) }, "Error|Secret liqo-tenant-milan/kubeconfig|it is missing: it holds the kubeconfig of cluster milan, recreate it with refractctl peer"},
		"credentials malformed":     {func(p *Examination) { p.checkAccess(vn, secret, &corev1.Secret{}) }, "Error|Secret liqo-tenant-milan/kubeconfig|data.kubeconfig cannot be read as a kubeconfig"},
		"credentials expired":       {func(p *Examination) { p.checkAccess(vn, secret, kubeconfig(token(now.Add(-time.Hour)))) }, "Error|Secret liqo-tenant-milan/kubeconfig|the credentials in it have expired on 2026-05-01: renew them with refractctl peer"},
		"credentials expiring":      {func(p *Examination) { p.checkAccess(vn, secret, kubeconfig(token(now.Add(24*time.Hour)))) }, "Warning|Secret liqo-tenant-milan/kubeconfig|the credentials in it expire on 2026-05-02: renew them with refractctl peer"},
		"credentials well":          {func(p *Examination) { p.checkAccess(vn, secret, kubeconfig(token(now.Add(80*24*time.Hour)))) }, "OK|Secret liqo-tenant-milan/kubeconfig|valid for cluster milan until 2026-07-20"},
		"certificate well":          {func(p *Examination) { p.checkAccess(vn, secret, certified(t, now.Add(80*24*time.Hour), true)) }, "OK|Secret liqo-tenant-milan/kubeconfig|valid for cluster milan until 2026-07-20, renewed by the controller manager before"},
		"certificate by hand":       {func(p *Examination) { p.checkAccess(vn, secret, certified(t, now.Add(80*24*time.Hour), false)) }, "OK|Secret liqo-tenant-milan/kubeconfig|valid for cluster milan until 2026-07-20: run refractctl peer again before, nobody else renews this certificate; set authentication.enabled of the chart first if cluster milan runs Refract"},
		"certificate not renewed":   {func(p *Examination) { p.checkAccess(vn, secret, certified(t, now.Add(-time.Hour), true)) }, "Error|Secret liqo-tenant-milan/kubeconfig|the credentials in it have expired on 2026-05-01: renew them with refractctl peer --credentials=certificate; the Events CredentialsNotRenewed of VirtualNode"},
		"certificate to be renewed": {func(p *Examination) { p.checkAccess(vn, secret, certified(t, now.Add(24*time.Hour), false)) }, "Warning|Secret liqo-tenant-milan/kubeconfig|the credentials in it expire on 2026-05-02: renew them with refractctl peer --credentials=certificate; nobody else renews this certificate, unless cluster milan runs Refract with authentication.enabled when you do"},
		"credentials of no date":    {func(p *Examination) { p.checkAccess(vn, secret, kubeconfig("opaque")) }, "OK|Secret liqo-tenant-milan/kubeconfig|valid for cluster milan, expiry unknown"},

		"namespace nowhere":  {func(p *Examination) { p.checkNamespace(extended(offloading.AllFailedOffloadingPhaseType)) }, "Error|namespace shop|not offloaded: see kubectl -n shop describe namespaceoffloading offloading"},
		"namespace in parts": {func(p *Examination) { p.checkNamespace(extended(offloading.SomeFailedOffloadingPhaseType)) }, `Warning|namespace shop|its phase is "SomeFailed": see kubectl -n shop describe namespaceoffloading offloading`},
		"namespace well":     {func(p *Examination) { p.checkNamespace(extended(offloading.ReadyOffloadingPhaseType)) }, "OK|namespace shop|offloaded as shop-rome"},

		"CRD missing":             {func(p *Examination) { p.checkSchema(crd(spec), nil, true) }, "Error|CRD quotas.offloading.liqo.io|it is missing: run refractctl install"},
		"CRD older":               {func(p *Examination) { p.checkSchema(crd(spec), crd(older), true) }, "Warning|CRD quotas.offloading.liqo.io|it is not that of this refractctl, spec.versions[0].maxLength differs"},
		"CRD older, and not ours": {func(p *Examination) { p.checkSchema(crd(spec), crd(older), false) }, ""},
		"CRD with defaults":       {func(p *Examination) { p.checkSchema(crd(spec), crd(installedSpec), true) }, ""},
		"CRD with another version": {func(p *Examination) {
			p.checkSchema(crd(spec), crd(map[string]any{"scope": "Namespaced", "versions": []any{}}), true)
		}, "spec.versions differs"},

		"version older":     {func(p *Examination) { p.compareInstalled("0.2.0", "0.1.0") }, "Warning|version|0.1.0 is installed, and this refractctl is of version 0.2.0: upgrade the cluster with refractctl install"},
		"version newer":     {func(p *Examination) { p.compareInstalled("0.1.0", "0.2.0") }, "Warning|version|0.2.0 is installed, and this refractctl is of version 0.1.0: use refractctl of version 0.2.0"},
		"version same":      {func(p *Examination) { p.compareInstalled("0.1.0", "0.1.0") }, "OK|version|0.1.0, as refractctl"},
		"version of theirs": {func(p *Examination) { p.compareInstalled("0.1.0", "mine") }, "OK|version|version mine is installed; it cannot be compared"},

		"clock ahead":   {func(p *Examination) { p.checkSkew(5*time.Minute, true) }, "Warning|clock|the clock of the API server is 5m0s ahead of that of this computer: synchronise them (NTP)"},
		"clock behind":  {func(p *Examination) { p.checkSkew(-5*time.Minute, true) }, "is 5m0s behind that of this computer"},
		"clock well":    {func(p *Examination) { p.checkSkew(time.Second, true) }, "OK|clock|in sync with this computer"},
		"clock unknown": {func(p *Examination) { p.checkSkew(0, false) }, "OK|clock|unknown"},

		"network down":             {func(p *Examination) { p.checkNetwork(peerNetwork(plugins.GatewayNetwork, &recent, connected("False"))) }, "Error|PeerNetwork liqo-tenant-milan/milan|the network to milan is down, Handshake: no answer from the gateway; try it with refractctl network test"},
		"network coming up":        {func(p *Examination) { p.checkNetwork(peerNetwork(plugins.GatewayNetwork, nil, connected("Unknown"))) }, "Warning|PeerNetwork liqo-tenant-milan/milan|the network to milan is being set up"},
		"network not checked":      {func(p *Examination) { p.checkNetwork(peerNetwork(plugins.GatewayNetwork, &stale, connected("True"))) }, "Error|PeerNetwork liqo-tenant-milan/milan|the condition Connected was checked last at 2026-05-01T11:00:00Z"},
		"network up":               {func(p *Examination) { p.checkNetwork(peerNetwork(plugins.GatewayNetwork, &recent, connected("True"))) }, "OK|PeerNetwork liqo-tenant-milan/milan|connected"},
		"network of nobody":        {func(p *Examination) { p.checkNetwork(peerNetwork(plugins.ReachableNetwork, nil)) }, "OK|PeerNetwork liqo-tenant-milan/milan|Reachable; no controller reports whether it is connected"},
		"no network":               {func(p *Examination) { p.checkNetwork(peerNetwork(plugins.NoNetwork, nil)) }, "OK|PeerNetwork liqo-tenant-milan/milan|spec.mode is None"},
		"ranges overlap":           {func(p *Examination) { p.checkNetwork(overlap) }, "Warning|PeerNetwork liqo-tenant-milan/milan|the pod ranges overlap, 10.1.0.0/16 here and 10.1.0.0/16 of milan"},
		"ranges that are remapped": {func(p *Examination) { p.checkNetwork(remapped) }, "OK|PeerNetwork liqo-tenant-milan/milan|Gateway"},

		"webhook's CA unreadable": {func(p *Examination) { p.checkAuthority(webhook([]byte("x")), nil, installed) }, "Error|webhook pods.refract.io|clientConfig.caBundle cannot be read"},
		"webhook's CA expired":    {func(p *Examination) { p.checkAuthority(webhook(expiredPEM), expiredPEM, installed) }, "Error|webhook pods.refract.io|the CA in clientConfig.caBundle expired on 2026-05-01: restart the controller manager, which renews it: kubectl -n liqo rollout restart deployment refract-controller-manager"},
		"webhook's CA expiring":   {func(p *Examination) { p.checkAuthority(webhook(expiringPEM), expiringPEM, installed) }, "Warning|webhook pods.refract.io|the CA in clientConfig.caBundle expires on 2026-05-01"},
		"webhook's CA another":    {func(p *Examination) { p.checkAuthority(webhook(freshPEM), expiringPEM, installed) }, "Warning|webhook pods.refract.io|clientConfig.caBundle is not ca.crt of Secret liqo/refract-webhook"},
		"webhook's CA well":       {func(p *Examination) { p.checkAuthority(webhook(freshPEM), freshPEM, installed) }, ""},
		"webhook's CA of theirs":  {func(p *Examination) { p.checkAuthority(webhook(freshPEM), nil, installed) }, ""},

		"serving certificate expired":  {func(p *Examination) { p.checkCertificate(vn, expired) }, "Warning|node milan|its serving certificate expired on 2026-05-01"},
		"serving certificate expiring": {func(p *Examination) { p.checkCertificate(vn, expiring) }, "Warning|node milan|its serving certificate expires at 2026-05-01T13:00:00Z"},
		"serving certificate well":     {func(p *Examination) { p.checkCertificate(vn, fresh) }, ""},
		"request signed long ago": {func(p *Examination) {
			p.certificateRequest(vn, csr(time.Hour, func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = expiredPEM }))
		}, "Warning|node milan|its serving certificate expired"},
		"request denied": {func(p *Examination) { p.certificateRequest(vn, csr(0, condition(certificatesv1.CertificateDenied))) }, "Warning|CertificateSigningRequest csr-1|the serving certificate of virtual node milan was not signed (Denied, by policy)"},
		"request failed": {func(p *Examination) { p.certificateRequest(vn, csr(0, condition(certificatesv1.CertificateFailed))) }, "was not signed (Failed, by policy)"},
		"request pending": {func(p *Examination) {
			p.certificateRequest(vn, csr(time.Hour, func(*certificatesv1.CertificateSigningRequest) {}))
		}, "Warning|CertificateSigningRequest csr-1|the serving certificate of virtual node milan is not approved"},
		"request unsigned": {func(p *Examination) {
			p.certificateRequest(vn, csr(time.Hour, condition(certificatesv1.CertificateApproved)))
		}, "Warning|CertificateSigningRequest csr-1|the serving certificate of virtual node milan is approved, and not signed: check whether the signer kubernetes.io/kubelet-serving runs"},
		"request sent now": {func(p *Examination) {
			p.certificateRequest(vn, csr(time.Second, func(*certificatesv1.CertificateSigningRequest) {}))
		}, ""},
		"no request": {func(p *Examination) { p.certificateRequest(vn, nil) }, ""},

		"kubelet reached": {func(p *Examination) { p.checkConnection(vn, "ok", nil) }, "OK|node milan|the API server reaches its virtual kubelet"},
		"kubelet not trusted": {func(p *Examination) {
			p.checkConnection(vn, `{"kind":"Status","message":"error trying to reach service: x509: unknown authority"}`, apierrors.NewServiceUnavailable("unable"))
		}, "Warning|node milan|logs and exec fail, because the API server does not trust its serving certificate (error trying to reach service: x509: unknown authority)"},
		"kubelet not reached": {func(p *Examination) { p.checkConnection(vn, "", apierrors.NewServiceUnavailable("dial tcp: timeout")) }, "Warning|node milan|logs and exec fail, because the API server does not reach its virtual kubelet (dial tcp: timeout)"},
		"kubelet not asked": {func(p *Examination) {
			p.checkConnection(vn, "", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "milan", nil))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Examination{Now: now}
			test.look(p)
			var lines []string
			for _, f := range p.found {
				lines = append(lines, fmt.Sprintf("%s|%s|%s", f.Level, f.Subject, f.Message))
			}
			switch found := strings.Join(lines, "\n"); {
			case test.want == "":
				assert.Empty(t, found)
			default:
				assert.Contains(t, found, test.want)
			}
		})
	}
}

func TestTheLatestRequestOfAVirtualKubeletCounts(t *testing.T) {
	t.Parallel()
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}}
	request := func(name, user string, age time.Duration, usage certificatesv1.KeyUsage) certificatesv1.CertificateSigningRequest {
		return certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))},
			Spec: certificatesv1.CertificateSigningRequestSpec{Username: user, Usages: []certificatesv1.KeyUsage{usage}}}
	}
	const user = "system:serviceaccount:liqo-tenant-milan:milan"
	latest := latestFor(vn, []certificatesv1.CertificateSigningRequest{
		request("old", user, time.Hour, certificatesv1.UsageServerAuth), request("latest", user, time.Minute, certificatesv1.UsageServerAuth),
		request("client", user, 0, certificatesv1.UsageClientAuth), request("other", "system:node:a", 0, certificatesv1.UsageServerAuth),
	})
	require.NotNil(t, latest)
	assert.Equal(t, "latest", latest.Name)
	assert.Nil(t, latestFor(vn, nil))
}

// TestEmbedded checks that all CRDs of the release are embedded, that the version can be compared, and that the chart's
// webhook has the expected name.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	crds, err := embeddedDefinitions()
	require.NoError(t, err)
	names, err := release.Definitions()
	require.NoError(t, err)
	assert.Len(t, crds, len(names))
	version, err := Version()
	require.NoError(t, err)
	_, known := compareVersions(version, version)
	assert.True(t, known, version)
	template, err := charts.Refract.ReadFile("refract/templates/webhook.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(template), "name: "+podWebhook+"\n")
}

// TestRightsOfTheControllerManager checks that the expected permissions of a controller manager depend on its flags.
func TestRightsOfTheControllerManager(t *testing.T) {
	t.Parallel()
	manager := rbac.Manager{Namespace: "liqo", Subject: rbac.ServiceAccount("liqo", "refract-controller-manager")}
	texts := func(arguments ...string) (found []string) {
		for _, right := range rightsOf(manager, arguments) {
			found = append(found, describeRight(right))
		}
		return found
	}
	const approve, webhook = "approve signers.certificates.k8s.io kubernetes.io/kubelet-serving", "get secrets refract-webhook in namespace liqo"
	always := texts()
	for _, want := range []string{"patch shadowpods/status.offloading.liqo.io", "create pods", "create leases.coordination.k8s.io in namespace liqo", webhook} {
		assert.Contains(t, always, want)
	}
	assert.NotContains(t, always, approve)
	assert.Contains(t, texts("--approve-serving-certificates"), approve)
	assert.NotContains(t, texts("--approve-serving-certificates=false"), approve)
	assert.NotContains(t, texts("--enable-scheduling-webhook=false"), webhook)
	const bindings = "list clusterrolebindings.rbac.authorization.k8s.io"
	assert.Contains(t, texts("--tenant-default-object-count=1000"), bindings)
	assert.NotContains(t, texts("--tenant-default-object-count=0"), bindings)
}
