// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/test/support/testenv"
)

// shared is the API server of all tests that call hold. These tests run one after the other. Before each test, the
// API server is reset to a snapshot.
var shared struct {
	cluster  *testenv.Cluster
	snapshot *testenv.Snapshot
	// tests is the number of tests that have used the API server.
	tests int
}

func stopShared() error {
	if shared.cluster == nil {
		return nil
	}
	return shared.cluster.Stop()
}

func startShared(t *testing.T) {
	t.Helper()
	require.NoError(t, stopShared(), "after a start that has failed")
	cluster, err := testenv.Start(t.Context(), testenv.Options{
		CRDPaths: []string{filepath.Join(chartDir, "crds"), filepath.Join(chartDir, "files", "network")}, NoScheduler: true,
		ExtraAPIServerArgs: []string{"--disable-admission-plugins=ServiceAccount"},
	})
	require.NoError(t, err)
	shared.cluster = cluster
	h := &held{t, cluster, clientOf(t, cluster)}
	h.install()
	shared.snapshot, err = cluster.Snapshot(t.Context())
	require.NoError(t, err)
}

// hold returns the shared API server with the roles and policies of the chart, but without objects of other tests.
func hold(t *testing.T) *held {
	testenv.NeedControlPlane(t)
	if shared.snapshot == nil {
		startShared(t)
	}
	h := &held{t, shared.cluster, clientOf(t, shared.cluster)}
	h.releasePorts()
	h.must(shared.cluster.Rewind(t.Context(), shared.snapshot))
	h.awaitRewind()
	return h
}

// releasePorts deletes the Services of the previous test, because the API server keeps their ports in memory.
func (h *held) releasePorts() {
	h.Helper()
	var services corev1.ServiceList
	h.must(h.admin.List(h.Context(), &services))
	for i := range services.Items {
		service := &services.Items[i]
		if service.Namespace == metav1.NamespaceDefault && service.Name == "kubernetes" {
			continue
		}
		h.must(h.admin.Patch(h.Context(), service, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		h.must(client.IgnoreNotFound(h.admin.Delete(h.Context(), service)))
	}
}

func clientOf(t *testing.T, cluster *testenv.Cluster) client.Client {
	t.Helper()
	admin, err := client.New(cluster.Config(), client.Options{Scheme: scheme(t)})
	require.NoError(t, err)
	return admin
}

// probe is the name of a ConfigMap. Whether its creation is denied shows which state of the Namespaces the policies
// use, because policies read Namespaces from a cache.
const probe = "rewound"

// awaitRewind waits until the policies are enforced and use the Namespaces as they are after the rewind. For this, it
// changes a Namespace after the rewind and waits until the policies use the change.
func (h *held) awaitRewind() {
	h.Helper()
	shared.tests++
	count := fmt.Sprint(shared.tests)
	h.must(h.admin.Patch(h.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: releaseNamespace}},
		client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, probe, count))))
	h.attempt("creating the probe of this rewind", "", func() error { return h.createProbe(count) })
	h.attempt("creating the probe of another rewind", "another rewind", func() error { return h.createProbe("0") })
}

func (h *held) createProbe(count string) error {
	return h.admin.Create(h.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: releaseNamespace, Name: probe}, Data: map[string]string{"count": count},
	}, client.DryRunAll)
}

// probePolicy returns a policy that denies the creation of the probe as long as the policy does not use the latest
// annotation of the probe's namespace.
func probePolicy() (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: probe},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{probe},
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "namespaceObject.metadata.?annotations[?'" + probe + "'].orValue('') == object.data.count",
				Message:    "the annotation is of another rewind",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: probe},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: probe, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	return policy, binding
}
