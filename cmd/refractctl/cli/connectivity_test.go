// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestResultsArePrintedInSpiteOfTheCleanup checks that the results of a test are printed even if its namespace cannot
// be deleted.
func TestResultsArePrintedInSpiteOfTheCleanup(t *testing.T) {
	node(t, "como")
	create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tester"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "offloading.liqo.io"}, Resources: []string{"nodes", "namespaces", "namespaceoffloadings"}, Verbs: []string{"get", "list", "create"}}}})
	create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "tester"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tester"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "tester"}}})
	access := accessTo(testCluster.Kubeconfig())
	*access.Flags.Impersonate = "tester"
	tester, err := access.NewClient(invocation.RequestTimeout)
	require.NoError(t, err)
	testenv.Eventually(t, func() error { return tester.List(t.Context(), &corev1.NodeList{}) })
	out, _, err := refractctl(t, onCluster("test", "como", "--image=none", "--timeout=300ms", "--as=tester")...)
	require.ErrorContains(t, err, "checks failed: 1")
	require.ErrorContains(t, err, "deleting namespace refract-test-")
	assert.Equal(t, invocation.ExitFailed, invocation.ExitCode(err))
	assert.Regexp(t, `Error +the namespace is offloaded to como +not after 300ms: `, out)
}
