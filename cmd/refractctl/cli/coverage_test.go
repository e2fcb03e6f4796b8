// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/namespaces"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/coverage"
	"github.com/refract-project/refract/test/support/testenv"
)

// uncovered returns the output of the coverage check for the namespaces.
func uncovered(t *testing.T, names ...string) string {
	t.Helper()
	var out strings.Builder
	namespaces.WarnUncovered(t.Context(), admin(t), &out, names)
	return out.String()
}

// TestOffloadTellsWhatIsNotCovered checks that offloading a namespace prints which of its policies a provider does not
// enforce: policies that cannot be translated, objects that are excluded by their annotations or by an AllowList, kinds
// that the provider does not grant, and kinds whose reflection is disabled. In this test, the cluster is its own
// provider.
func TestOffloadTellsWhatIsNotCovered(t *testing.T) {
	const namespace, remote, tenant, account = "guarded", "guarded-rome", "liqo-tenant-padua", "padua"
	for _, name := range []string{namespace, remote, tenant} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	assert.Empty(t, uncovered(t, namespace), "a namespace that is not offloaded")
	nm := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "padua", Labels: map[string]string{wire.RemoteClusterIDLabel: "padua"}}}
	create(t, nm)
	nm.Status.CurrentMapping = map[string]offloading.RemoteNamespaceStatus{namespace: {RemoteNamespace: remote, Phase: offloading.MappingAccepted}}
	require.NoError(t, admin(t).Status().Update(t.Context(), nm))
	assert.Empty(t, uncovered(t, namespace), "a namespace without policies")

	create(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
			{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "payments"}}}, {PodSelector: &metav1.LabelSelector{}}}}},
	}})
	create(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept", Annotations: map[string]string{wire.SkipReflectionAnnotation: "true"}}})
	create(t, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(1))}})
	doubtful := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "doubtful", Annotations: map[string]string{wire.SkipReflectionAnnotation: "perhaps"}}}
	create(t, doubtful)
	const team, kept = "warning: cluster padua: NetworkPolicy guarded/db: spec.ingress[0].from[0].namespaceSelector selects by the label team", "NetworkPolicy guarded/kept is not reflected: annotation liqo.io/skip-reflection is set"
	said := uncovered(t, namespace)
	const perhaps = `PodDisruptionBudget guarded/doubtful is not reflected: annotation liqo.io/skip-reflection is "perhaps"`
	for _, want := range []string{team, kept, perhaps, "note: " + coverage.PolicyNote, "note: " + coverage.BudgetNote} {
		assert.Contains(t, said, want)
	}
	assert.Equal(t, 5, strings.Count(said, "\n"), said)
	require.NoError(t, admin(t).Delete(t.Context(), doubtful))

	// The virtual node has credentials for the provider, and lists the labels that pods lose on the provider.
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: account}})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, testCluster.ServiceAccountKubeconfig(t.Context(), file, tenant, account))
	kubeconfig, err := os.ReadFile(file)
	require.NoError(t, err)
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "kubeconfig"}, Data: map[string][]byte{wire.KubeconfigSecretKey: kubeconfig}})
	create(t, &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "padua"}, Spec: offloading.VirtualNodeSpec{ClusterID: "padua",
		KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig"}, OffloadingPatch: &offloading.OffloadingPatch{LabelsNotReflected: []string{"tier"}}}})
	said = uncovered(t, namespace)
	assert.Contains(t, said, "cluster padua: it does not let this cluster create the 2 NetworkPolicies of namespace guarded: offloaded pods are not isolated there")
	assert.Contains(t, said, "create the 1 PodDisruptionBudgets of namespace guarded: evictions of offloaded pods are not limited there")
	assert.NotContains(t, said, team, "nothing is translated")

	clients, err := kubernetes.NewForConfig(testCluster.Config())
	require.NoError(t, err)
	consumer := rbac.Consumer{Prefix: "guarded", Subject: rbac.ServiceAccount(tenant, account)}
	require.NoError(t, rbac.Install(t.Context(), clients, append(consumer.Objects(), consumer.RemoteNamespace(remote))...))
	testenv.Eventually(t, func() error {
		if said = uncovered(t, namespace); strings.Contains(said, "it does not let") {
			return assert.AnError
		}
		return nil
	})
	assert.Contains(t, said, "NetworkPolicy guarded/db: spec.podSelector selects by the label tier")

	// NetworkPolicies are additive. If an older provider has a policy that allows egress, a policy of this cluster
	// cannot restrict it.
	closed := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "closed"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}}
	create(t, closed)
	const opened = "the egress rules of NetworkPolicies closed in namespace guarded do not restrict egress there"
	assert.NotContains(t, uncovered(t, namespace), opened)
	create(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: wire.EgressNetworkPolicy}})
	assert.Contains(t, uncovered(t, namespace), opened)
	// If a provider isolates all pods, its default egress applies only to pods that no other policy selects.
	create(t, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: wire.EgressIsolationPolicy}})
	assert.NotContains(t, uncovered(t, namespace), opened)
	require.NoError(t, admin(t).Delete(t.Context(), closed))

	labels := map[string]string{wire.ComponentLabel: wire.VirtualKubeletComponent}
	create(t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "vk-padua", Labels: labels}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Replicas: ptr.To[int32](0),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "vk", Image: "none", Args: []string{"--networkpolicy-reflection-workers=0", "--poddisruptionbudget-reflection-type=AllowList"}}}}}}})
	said = uncovered(t, namespace)
	assert.Contains(t, said, "the 2 NetworkPolicies of namespace guarded are not reflected, by --networkpolicy-reflection-workers=0")
	assert.NotContains(t, said, "PodDisruptionBudgets of namespace")
	const allow = "PodDisruptionBudget guarded/db is not reflected: the policy is AllowList and annotation liqo.io/allow-reflection is not set"
	assert.Contains(t, said, allow)
	require.NoError(t, admin(t).Patch(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}},
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"liqo.io/allow-reflection":"true"}}}`))))
	assert.NotContains(t, uncovered(t, namespace), allow)
}
