// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/scheme"
	"github.com/refract-project/refract/test/support/testenv"
)

var cluster *testenv.Cluster

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, &cluster, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true}))
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	kinds, err := scheme.New()
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: kinds})
	require.NoError(t, err)
	return c
}

// testOf returns a test of an existing virtual node, and the lines that the test reports. There are no controllers that
// offload namespaces in this cluster.
func testOf(t *testing.T, config *rest.Config, name string) (*Test, *[]string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType, corev1.LabelHostname: name}}}
	require.NoError(t, client.IgnoreAlreadyExists(clientOf(t, cluster.Config()).Create(t.Context(), node)))
	said := &[]string{}
	return &Test{Client: clientOf(t, config), Config: config, VirtualNode: name, Image: "controller-manager", PodTimeout: 3 * time.Second, CheckTimeout: time.Second,
		Progress: func(line string) { *said = append(*said, line) }}, said
}

// tests returns the names of the test namespaces that are not being deleted.
func tests(t *testing.T) (names []string) {
	t.Helper()
	namespaces := &corev1.NamespaceList{}
	require.NoError(t, clientOf(t, cluster.Config()).List(t.Context(), namespaces, client.MatchingLabels{testLabel: "true", managedByLabel: managedBy}))
	for i := range namespaces.Items {
		if namespaces.Items[i].DeletionTimestamp == nil {
			names = append(names, namespaces.Items[i].Name)
		}
	}
	return names
}

// TestOffloadingIsBounded checks that the test returns a result with the reason, and no error, if the namespace is not
// offloaded in time.
func TestOffloadingIsBounded(t *testing.T) {
	test, said := testOf(t, cluster.Config(), "milan")
	begun := time.Now()
	results, err := test.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, results, 1)
	assert.Equal(t, Result{Check: "the namespace is offloaded to milan", Message: "not after 3s: waiting for the controller manager of this cluster, which does not answer: check that it runs (refractctl doctor)"}, results[0])
	assert.Less(t, time.Since(begun), time.Minute)
	assert.Empty(t, tests(t), "%q", *said)

	test, _ = testOf(t, cluster.Config(), "milan")
	progress := test.Progress
	test.Progress = func(line string) { // this callback does the work of the controller
		progress(line)
		nso := &offloading.NamespaceOffloading{}
		if test.Client.Get(t.Context(), client.ObjectKey{Namespace: test.namespace, Name: offloading.NamespaceOffloadingName}, nso) != nil {
			return
		}
		status := fmt.Sprintf(`{"status":{"offloadingPhase":"InProgress","observedGeneration":%d,"remoteNamespacesConditions":{"milan":[{"type":"Ready","status":"False","reason":"CreationLoopBackOff","message":"the name is reserved"}]}}}`, nso.Generation)
		assert.NoError(t, test.Client.Status().Patch(t.Context(), nso, client.RawPatch(types.MergePatchType, []byte(status))))
	}
	results, err = test.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, results, 1)
	assert.Equal(t, "not after 3s: InProgress; milan: CreationLoopBackOff, the name is reserved", results[0].Message)
}

// TestResultsOutliveTheCleanup checks that the results are returned even if the namespace cannot be removed.
func TestResultsOutliveTheCleanup(t *testing.T) {
	admin := clientOf(t, cluster.Config())
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tester"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "offloading.liqo.io"}, Resources: []string{"nodes", "namespaces", "namespaceoffloadings"}, Verbs: []string{"get", "list", "create"}},
	}}
	require.NoError(t, admin.Create(t.Context(), role))
	require.NoError(t, admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "tester"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tester"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "tester"}}}))
	config := cluster.Config()
	config.Impersonate.UserName = "tester"
	test, _ := testOf(t, config, "turin")
	testenv.Eventually(t, func() error { return test.Client.List(t.Context(), &corev1.NodeList{}) })
	results, err := test.Run(t.Context())
	require.ErrorContains(t, err, "deleting namespace refract-test-")
	require.Len(t, results, 1)
	assert.Equal(t, "the namespace is offloaded to turin", results[0].Check)

	// The test has left its namespace behind. A later test must remove it.
	left := tests(t)
	require.Len(t, left, 1)
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{testLabel: "true", managedByLabel: managedBy}}}
	require.NoError(t, admin.Create(t.Context(), foreign))
	test, said := testOf(t, cluster.Config(), "turin")
	test.removeLeftovers(t.Context(), time.Now().Add(leftoverAge-time.Minute))
	assert.ElementsMatch(t, append(left, "mine"), tests(t))
	assert.Empty(t, *said)
	test.removeLeftovers(t.Context(), time.Now().Add(leftoverAge+time.Minute))
	assert.Equal(t, []string{"mine"}, tests(t))
	assert.True(t, strings.HasPrefix((*said)[0], "namespace "+left[0]+" is removed: a test that was interrupted 6h1m0s ago has left it"), "%q", *said)
}
