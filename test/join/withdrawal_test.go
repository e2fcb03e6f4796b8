// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestWithdrawals checks that a command that withdraws the resource request of a virtual node or the access of a
// consumer either does so completely or fails.
func TestWithdrawals(t *testing.T) {
	t.Parallel()
	w := begin(t)
	for _, name := range []string{"rome", "milan"} {
		w.must("install", "--context="+name, "--cluster-id="+name, "--registry=registry.example.com/refract", replicas)
	}
	w.registerNodes("milan", "milan-b")
	w.must(w.join("--cpu=2")...)
	w.cordoned()
	w.withdrawnRequests()
	w.withdrawnAccess()
}

// cordoned tests a consumer that milan has cordoned. Its pods are not admitted, even if refractctl peer is run again.
func (w *world) cordoned() {
	w.Helper()
	is := func(want bool) {
		w.Helper()
		quota := &offloading.Quota{}
		require.NoError(w, w.typed(w.milan.Config()).Get(w.Context(), client.ObjectKey{Namespace: wire.TenantNamespace("rome"), Name: "rome"}, quota))
		assert.Equal(w, want, ptr.Deref(quota.Spec.Cordoned, false))
	}
	w.must("cordon", "tenant", "rome", "--context=milan")
	is(true)
	w.must(w.join("--cpu=3")...)
	is(true)
	w.must("uncordon", "tenant", "rome", "--context=milan")
	is(false)
}

// requests returns the names of rome's ResourceSlices on milan.
func (w *world) requests() (names []string) {
	w.Helper()
	list, err := dynamic.NewForConfigOrDie(w.milan.Config()).Resource(auth.GroupVersion.WithResource("resourceslices")).Namespace(wire.TenantNamespace("rome")).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}

// withdrawnRequests tests the withdrawal of the resource requests of deleted virtual nodes. The command must check the
// provider before it deletes anything.
func (w *world) withdrawnRequests() {
	w.Helper()
	create := []string{"create", "virtualnode", "milan-b", "--provider=milan", "--cpu=1", "--memory=1Gi", "--remote-context=milan"}
	remove := []string{"delete", "virtualnode", "milan-b"}
	w.must(create...)
	rome, milan := w.inventory(w.rome), w.inventory(w.milan)
	w.refused(append(remove, "--remote-context=rome"), `cluster rome has the id "rome", and virtual node milan-b is of "milan"`)
	w.refused(append(remove, "--remote-context=stranger"), "cluster stranger", "cannot list resource")
	w.refused(append(remove, "--remote-kubeconfig="+filepath.Join(w.TempDir(), "absent")), "there is no such file")
	w.unchanged(w.rome, rome)
	w.unchanged(w.milan, milan)

	// This is the state after the command was interrupted before it deleted the request in milan.
	w.must(remove...)
	assert.Equal(w, []string{"milan", "milan-b"}, w.requests())
	removed := w.result(append(remove, "--remote-context=milan", "-o", "json")...)
	assert.Equal(w, []reported{{"milan", "ResourceSlice", wire.TenantNamespace("rome"), "milan-b"}}, removed.Removed)
	assert.Equal(w, []string{"milan"}, w.requests())
	w.refused(append(remove, "--remote-context=milan"), "there is no virtual node milan-b", "and cluster milan has no ResourceSlice milan-b for it")

	testenv.Eventually(w.T, func() error { // waits until the node is gone, as a controller would
		_, err := w.rome.client.CoreV1().Nodes().Get(w.Context(), "milan-b", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("node milan-b is still there (%w)", err)
		}
		return nil
	})
	w.must(create...)
	w.must(append(remove, "--remote-context=milan")...)
	assert.Equal(w, []string{"milan"}, w.requests())

	foreign := &unstructured.Unstructured{}
	foreign.SetGroupVersionKind(auth.GroupVersion.WithKind(auth.ResourceSliceKind))
	foreign.SetName("foreign")
	slices := dynamic.NewForConfigOrDie(w.milan.Config()).Resource(auth.GroupVersion.WithResource("resourceslices")).Namespace(wire.TenantNamespace("rome"))
	_, err := slices.Create(w.Context(), foreign, metav1.CreateOptions{})
	require.NoError(w, err)
	said, err := w.refractctl("delete", "virtualnode", "foreign", "--remote-context=milan")
	require.ErrorContains(w, err, "there is no virtual node foreign")
	assert.Contains(w, said, "ResourceSlice liqo-tenant-rome/foreign was not created by refractctl, so it stays")
	assert.Equal(w, []string{"foreign", "milan"}, w.requests())
	require.NoError(w, slices.Delete(w.Context(), "foreign", metav1.DeleteOptions{}))
}

// withdrawnAccess tests the withdrawal of a consumer's access. The command must fail if the consumer has access that
// refractctl cannot revoke.
func (w *world) withdrawnAccess() {
	w.Helper()
	milan := w.inventory(w.milan)
	w.refused([]string{"delete", "peering-user", "roma", "--context=milan"}, "cluster milan: there is no peering with roma: its peers are rome")
	w.refused([]string{"delete", "peering-user", "milan", "--context=rome"}, "milan has no access to this cluster, and refractctl has created nothing for it")
	w.unchanged(w.milan, milan)

	w.must("install", "--context=milan", `--set-json=consumers=[{"clusterID":"genoa"}]`)
	byChart := w.inventory(w.milan)
	remove := []string{"delete", "peering-user", "genoa", "--context=milan"}
	said, err := w.refractctl(remove...)
	for _, part := range []string{
		"genoa still has access, by ClusterRoleBinding liqo-virtual-kubelet-remote-clusterwide-genoa and RoleBinding liqo-tenant-genoa/liqo-remote-controlplane-genoa: ",
		"remove the consumer from the values of Helm release refract in namespace liqo (consumers), and run the command again",
	} {
		assert.ErrorContains(w, err, part)
	}
	assert.Contains(w, said, "milan: warning: left RoleBinding liqo-tenant-genoa/liqo-remote-controlplane-genoa: remove the consumer from the values")
	assert.Contains(w, said, "milan: warning: left Namespace liqo-tenant-genoa: Helm keeps it")
	w.unchanged(w.milan, byChart)

	w.must("install", "--context=milan", "--set-json=consumers=[]")
	w.refused(remove, "genoa has no access to this cluster")
	w.must("delete", "peering-user", "rome", "--context=milan")
	w.refused([]string{"delete", "peering-user", "rome", "--context=milan"}, "there is no peering with rome: its peers are genoa")
}
