// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/coverage"
	"github.com/refract-project/refract/internal/refractctl/peering"
	"github.com/refract-project/refract/internal/refractctl/release"
	"github.com/refract-project/refract/internal/refractctl/scheme"
	"github.com/refract-project/refract/test/support/testenv"
)

// world is a single cluster that acts both as the consumer rome and as its provider milan.
type world struct {
	*testenv.Cluster
	client    client.Client
	clientset kubernetes.Interface
	scheme    *runtime.Scheme
	installed *release.Installation
	// vn is a VirtualNode whose kubeconfig is in secret. The kubeconfig contains the token of a ServiceAccount without
	// permissions.
	vn     *offloading.VirtualNode
	secret *corev1.Secret
}

const (
	consumerTenant = "liqo-tenant-milan" // tenant namespace on the consumer, rome
	providerTenant = "liqo-tenant-rome"  // tenant namespace on the provider, milan
)

// TestAgainstAnAPIServer checks the findings that depend on responses of the API server. The last case stops the API
// server.
func TestAgainstAnAPIServer(t *testing.T) {
	w := newWorld(t)
	t.Run("permissions of a virtual kubelet", w.kubelet)
	t.Run("policies of offloaded namespaces", w.policies)
	t.Run("permissions at a provider", w.provider)
	t.Run("Quotas of consumers", w.quotas)
	t.Run("waiting pods", w.waitingPods)
	t.Run("webhook", w.webhook)
	t.Run("installation", w.installation)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		Cluster:   testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})[0],
		installed: &release.Installation{Name: "refract", Namespace: "liqo", ClusterID: "rome", RolePrefix: "liqo"},
		secret:    &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: consumerTenant, Name: "kubeconfig"}},
		vn: &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: consumerTenant, Name: "milan"},
			Spec: offloading.VirtualNodeSpec{ClusterID: "milan", KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig"}}},
	}
	var err error
	w.scheme, err = scheme.New()
	require.NoError(t, err)
	w.client, err = client.New(w.Config(), client.Options{Scheme: w.scheme})
	require.NoError(t, err)
	w.clientset, err = kubernetes.NewForConfig(w.Config())
	require.NoError(t, err)
	for _, name := range []string{consumerTenant, providerTenant, w.installed.Namespace, "shop"} {
		require.NoError(t, w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	require.NoError(t, w.client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: providerTenant, Name: wire.ConsumerServiceAccount}}))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, w.ServiceAccountKubeconfig(t.Context(), file, providerTenant, wire.ConsumerServiceAccount))
	kubeconfig, err := os.ReadFile(file)
	require.NoError(t, err)
	w.secret.Data = map[string][]byte{wire.KubeconfigSecretKey: kubeconfig}
	require.NoError(t, w.client.Create(t.Context(), w.secret))
	w.secret.ResourceVersion = "" // without a resource version, the update overwrites any version
	return w
}

// quotas checks the findings about the Quotas of rome. There are no findings as long as rome is only a provider. When
// it is also a consumer, a missing or cordoned Quota is reported.
func (w *world) quotas(t *testing.T) {
	look := func(p *Examination) error { return p.checkQuotas(t.Context(), w.installed) }
	rome := &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome", Labels: map[string]string{wire.RemoteClusterIDLabel: "rome"}}, Spec: core.ForeignClusterSpec{ClusterID: "rome"}}
	require.NoError(t, w.client.Create(t.Context(), rome))
	t.Cleanup(func() { require.NoError(t, w.client.Delete(context.Background(), rome)) })
	is := func(role core.Role) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"role":%q,"tenantNamespace":{"local":%q}}}`, role, providerTenant))
		require.NoError(t, w.client.Status().Patch(t.Context(), rome, patch))
	}
	is(core.ProviderRole)
	p := &Examination{Client: w.client, Now: time.Now()}
	require.NoError(t, look(p))
	require.Empty(t, p.found, "of a provider")
	is(core.ConsumerAndProviderRole)
	w.finds(t, look, "Warning|Quotas of consumer rome|there are none in namespace liqo-tenant-rome")
	quota := &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: providerTenant, Name: "rome"},
		Spec: offloading.QuotaSpec{User: "rome", LimitsEnforcement: offloading.NoLimitsEnforcement, Resources: corev1.ResourceList{}}}
	require.NoError(t, w.client.Create(t.Context(), quota))
	t.Cleanup(func() { require.NoError(t, w.client.Delete(context.Background(), quota)) })
	w.finds(t, look, "OK|Quotas of consumer rome|1 in namespace liqo-tenant-rome")
	require.NoError(t, w.client.Patch(t.Context(), quota, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"cordoned":true}}`))))
	w.finds(t, look, "Warning|Quotas of consumer rome|Quota liqo-tenant-rome/rome is cordoned")
}

// waitingPods checks that pods that are bound to a virtual node and not offloaded are reported with the remedy.
func (w *world) waitingPods(t *testing.T) {
	vn := w.vn.DeepCopy()
	require.NoError(t, w.client.Create(t.Context(), vn))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent"},
		Spec: corev1.PodSpec{NodeName: vn.Name, Containers: []corev1.Container{{Name: "agent", Image: "agent"}}}}
	testenv.Eventually(t, func() error { return w.client.Create(t.Context(), pod) }) // retries until the namespace has a ServiceAccount
	t.Cleanup(func() {
		for _, object := range []client.Object{vn, pod} {
			require.NoError(t, w.client.Delete(context.Background(), object, client.GracePeriodSeconds(0)))
		}
	})
	p := &Examination{Client: w.client}
	require.NoError(t, p.checkWaitingPods(t.Context(), w.installed))
	require.Empty(t, p.found, "of a pod that is going to be offloaded")
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"reason":%q}}`, wire.OffloadingBackOffReason))
	require.NoError(t, w.client.Status().Patch(t.Context(), pod, patch))
	w.finds(t, func(p *Examination) error { return p.checkWaitingPods(t.Context(), w.installed) },
		"Warning|pods of node milan|not offloaded, and waiting for ever: Pod shop/agent; see the Event ReflectionDisabled of each. "+
			"If their namespace is not to be offloaded, "+
			"exclude nodes with the label liqo.io/type=virtual-node in the node affinity of the DaemonSet or Deployment")
}

// finds waits for a finding, because an API server does not apply new roles at once.
func (w *world) finds(t *testing.T, look func(*Examination) error, want string) {
	t.Helper()
	testenv.Eventually(t, func() error {
		p := &Examination{Client: w.client, Now: time.Now()}
		if err := look(p); err != nil {
			return err
		}
		var lines []string
		for _, f := range p.found {
			lines = append(lines, fmt.Sprintf("%s|%s|%s", f.Level, f.Subject, f.Message))
		}
		if found := strings.Join(lines, "\n"); !strings.Contains(found, want) {
			return fmt.Errorf("found %s, want %s", found, want)
		}
		return nil
	})
}

// kubelet checks that the permissions of a virtual kubelet are checked in the whole cluster, in its tenant namespace
// and in offloaded namespaces.
func (w *world) kubelet(t *testing.T) {
	look := func(p *Examination) error { return p.kubeletRights(t.Context(), w.vn, w.installed) }
	const lacks, well = "Error|permissions of the virtual kubelet liqo-tenant-milan/milan|ServiceAccount liqo-tenant-milan/milan may not ",
		"OK|permissions of the virtual kubelet liqo-tenant-milan/milan|ServiceAccount liqo-tenant-milan/milan has them all"
	w.finds(t, look, lacks)
	w.finds(t, look, " other permissions: run refractctl install, which updates the roles of all virtual nodes, and refractctl create virtualnode milan --provider=milan, which")
	w.vn.Labels = map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}
	w.finds(t, look, " other permissions: run refractctl install, which updates the roles of all virtual nodes, and refractctl peer, which")
	identity := rbac.Kubelet{Prefix: w.installed.RolePrefix, NodeName: "milan", TenantNamespace: consumerTenant, KubeconfigSecret: w.secret.Name, Subject: rbac.ServiceAccount(consumerTenant, "milan")}
	require.NoError(t, rbac.Install(t.Context(), w.clientset, identity.Objects()...))
	w.finds(t, look, well)

	offloaded := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: consumerTenant, Name: "milan"}}
	require.NoError(t, w.client.Create(t.Context(), offloaded))
	offloaded.Status.CurrentMapping = map[string]offloading.RemoteNamespaceStatus{"shop": {RemoteNamespace: "shop-rome", Phase: offloading.MappingAccepted}}
	require.NoError(t, w.client.Status().Update(t.Context(), offloaded))
	w.finds(t, look, "in namespace shop")
	require.NoError(t, rbac.Install(t.Context(), w.clientset, identity.ExtendedNamespace("shop")))
	w.finds(t, look, well)
}

// policies checks that a provider that does not enforce the policies of an offloaded namespace is reported.
func (w *world) policies(t *testing.T) {
	look := func(p *Examination) error { return p.checkNamespaces(t.Context(), w.installed) }
	offloaded := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: offloading.NamespaceOffloadingName},
		Spec: offloading.NamespaceOffloadingSpec{PodOffloadingStrategy: offloading.RemotePodOffloadingStrategyType, NamespaceMappingStrategy: offloading.DefaultNameMappingStrategyType}}
	require.NoError(t, w.client.Create(t.Context(), offloaded))
	require.NoError(t, w.client.Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: networkingv1.NetworkPolicySpec{
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "payments"}}}}}}}}))
	w.finds(t, look, "Warning|namespace shop|cluster milan: NetworkPolicy shop/db: spec.ingress[0].from[0].namespaceSelector selects by the label team")
	w.finds(t, look, "OK|offloaded namespaces|"+coverage.PolicyNote)
	require.NoError(t, w.client.Delete(t.Context(), offloaded))
}

// provider checks that the provider is accessed with the credentials of the virtual kubelet, and that it is not an
// error if this computer cannot reach the provider.
func (w *world) provider(t *testing.T) {
	look := func(p *Examination) error { return p.checkCredentials(t.Context(), w.vn, w.installed) }
	const subject = "Secret liqo-tenant-milan/kubeconfig|"
	w.finds(t, look, "Error|"+subject+"cluster milan does not let this cluster ")
	w.finds(t, look, "upgrade cluster milan with refractctl install and run refractctl peer again, or have its administrator run refractctl generate peering-user rome")
	consumer := rbac.Peer(w.installed.RolePrefix, "rome")
	require.NoError(t, rbac.Install(t.Context(), w.clientset, append(consumer.Objects(), consumer.TenantNamespace(providerTenant))...))
	w.finds(t, look, "OK|"+subject+"cluster milan grants this cluster all permissions in namespace liqo-tenant-rome")

	replace := func(old, by string) {
		t.Helper()
		changed := w.secret.DeepCopy()
		kubeconfig := string(w.secret.Data[wire.KubeconfigSecretKey])
		require.Contains(t, kubeconfig, old)
		changed.Data[wire.KubeconfigSecretKey] = []byte(strings.ReplaceAll(kubeconfig, old, by))
		require.NoError(t, w.client.Update(t.Context(), changed))
	}
	replace("server: "+w.Config().Host, "server: https://127.0.0.1:1")
	w.finds(t, look, "Warning|"+subject+"the API server of cluster milan does not answer this computer, ")
	w.finds(t, look, "only pods of this cluster need to reach it, see condition APIServerStatus of ForeignCluster milan")
	replace("token: ", "token: x")
	w.finds(t, look, "Error|"+subject+"cluster milan rejects the credentials in it: renew them with refractctl peer")
	replace("token: ", "tokenFile: /etc/passwd #")
	w.finds(t, look, "Error|"+subject+"data.kubeconfig cannot be read as a kubeconfig, the kubeconfig names a file, tokenFile \"/etc/passwd\"")
	replace("token: ", "token: ") // replaces a text with itself, which restores the original
	require.NoError(t, w.client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: consumerTenant, Name: peering.KeysSecret}}))
	w.finds(t, look, "OK|"+subject+"cluster milan answers and accepts the credentials in it")
}

// webhook checks that an unreachable webhook is reported. It causes the rejection of pods unless its failurePolicy is
// Ignore.
func (w *world) webhook(t *testing.T) {
	extended := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: offloading.NamespaceOffloadingName}}
	require.NoError(t, w.client.Create(t.Context(), extended))
	extended.Status.OffloadingPhase = offloading.ReadyOffloadingPhaseType
	require.NoError(t, w.client.Status().Update(t.Context(), extended))
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: rbac.WebhookName}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: podWebhook, FailurePolicy: ptr.To(admissionregistrationv1.Fail), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/mutate/pod"), CABundle: w.CA()},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}},
	}}}
	require.NoError(t, w.client.Create(t.Context(), configuration))
	look := func(p *Examination) error { return p.checkWebhook(t.Context(), w.installed) }
	w.finds(t, look, "Error|webhook|"+Rejected)
	configuration.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	require.NoError(t, w.client.Update(t.Context(), configuration))
	w.finds(t, look, "Error|webhook|"+NotCalled)
}

// installation checks the findings if no installation can be found. This does not always mean that there is none.
func (w *world) installation(t *testing.T) {
	found := func(c client.Client) string {
		found := (&Examination{Client: c}).Examine(t.Context())
		require.Len(t, found, 1)
		return found[0].Message
	}
	require.Equal(t, "found no installation of Refract: install it with refractctl install", found(w.client))
	config, err := w.ConfigFor("stranger")
	require.NoError(t, err)
	stranger, err := client.New(config, client.Options{Scheme: w.scheme})
	require.NoError(t, err)
	message := found(stranger)
	require.Contains(t, message, "whether Refract is installed is unknown: listing Deployments, deployments.apps is forbidden")
	require.Contains(t, message, ": use the credentials of an administrator")
	require.NoError(t, w.StopAPIServer())
	message = found(w.client)
	require.Contains(t, message, "whether Refract is installed is unknown: the API server does not answer, ")
	require.Contains(t, message, ": check that it runs, and the context and the server of the kubeconfig")
}
