// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/doctor"
	"github.com/refract-project/refract/test/support/testenv"
)

// manager creates the Deployment of the controller manager in a namespace, as the chart does. It has no running
// replicas.
func manager(t *testing.T, c client.Client, namespace, id, version string) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "refract", "app.kubernetes.io/instance": "refract", "app.kubernetes.io/component": "controller-manager"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refract-controller-manager", Labels: map[string]string{"app.kubernetes.io/version": version}}}
	for key, value := range labels {
		d.Labels[key] = value
	}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.ServiceAccountName = "refract-controller-manager"
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "controller-manager", Image: "refract/controller-manager", Args: []string{"--cluster-id=" + id, "--vk-options-default-template=liqo/default"}}}
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	require.NoError(t, c.Create(t.Context(), d))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.WithoutCancel(t.Context()), d)) })
	return d
}

func TestDoctor(t *testing.T) {
	c := admin(t)
	version, err := doctor.Version()
	require.NoError(t, err)
	installed := manager(t, c, "examined", "rome", version)
	out, _, err := refractctl(t, onCluster("doctor")...)
	require.Equal(t, invocation.ExitFindings, invocation.ExitCode(err), "%v", err)
	for _, want := range []string{
		"as refractctl", "in sync with this computer", "they are enough for refractctl peer", "ServiceAccount examined/refract-controller-manager may not ",
		"create deployments.apps, nor ", "run refractctl install, which updates its roles and bindings",
	} {
		assert.Contains(t, out, want)
	}
	// The defaults that an API server adds do not count as differences.
	assert.NotContains(t, out, "CRD ")

	clientset, err := kubernetes.NewForConfig(testCluster.Config())
	require.NoError(t, err)
	m := rbac.Manager{Prefix: "examined", Namespace: "examined", Subject: rbac.ServiceAccount("examined", "refract-controller-manager")}
	require.NoError(t, rbac.Install(t.Context(), clientset, append(m.Objects(), m.VirtualNodes()...)...))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(installed), installed))
	before := installed.DeepCopy()
	installed.Labels["app.kubernetes.io/version"] = "0.0.1"
	installed.Spec.Template.Spec.Containers[0].Args = append(installed.Spec.Template.Spec.Containers[0].Args, "--remote-cluster-role=examined-virtual-kubelet-remote")
	require.NoError(t, c.Patch(t.Context(), installed, client.MergeFrom(before)))
	create(t, &plugins.PeerNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "examined", Name: "milan"}, Spec: plugins.PeerNetworkSpec{ClusterID: "milan", Mode: plugins.NoNetwork}})
	unreachableNode(t, "examined", "silent")
	out, _, _ = refractctl(t, onCluster("doctor", "--remote-kubeconfig="+testCluster.Kubeconfig())...)
	for _, want := range []string{
		"upgrade the cluster with refractctl install, providers before consumers", "ServiceAccount examined/refract-controller-manager has them all",
		"PeerNetwork examined/milan", "logs and exec fail, because the API server does not reach its virtual kubelet (", "connection refused", "are the same cluster: use another one as the provider", "the clocks of both clusters agree", "the versions are compatible",
	} {
		assert.Contains(t, out, want)
	}

	out, _, _ = refractctl(t, onCluster("doctor", "--as=viewer", "--as-group=system:masters")...)
	assert.Contains(t, out, "has them all")
	_, _, err = refractctl(t, onCluster("doctor", "--remote-context=nowhere")...)
	assert.ErrorContains(t, err, "the other cluster: ")
}

// unreachableNode creates a virtual node whose address does not respond.
func unreachableNode(t *testing.T, namespace, name string) {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	address := ""
	for _, a := range addresses { // an API server does not proxy to loopback addresses
		if ip, is := a.(*net.IPNet); is && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			address = ip.IP.String()
		}
	}
	require.NotEmpty(t, address, "this machine has no address but loopback")
	virtualNode(t, namespace, name)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	create(t, node)
	before := node.DeepCopy()
	node.Status = corev1.NodeStatus{
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 1}},
	}
	require.NoError(t, admin(t).Status().Patch(t.Context(), node, client.MergeFrom(before)))
}

// TestDoctorComparesClusters checks that doctor compares two clusters, and shows for each cluster how it reaches the
// other one.
func TestDoctorComparesClusters(t *testing.T) {
	milan := testenv.ForTest(t, testenv.Options{Name: "milan", CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})[0]
	here := admin(t)
	there, err := accessTo(milan.Kubeconfig()).NewClient(invocation.RequestTimeout)
	require.NoError(t, err)
	manager(t, here, "compared", "bergamo", "1.4.0")
	manager(t, there, "compared", "milan", "1.6.0")
	both := onCluster("doctor", "--remote-kubeconfig="+milan.Kubeconfig())
	out, _, err := refractctl(t, both...)
	require.Equal(t, invocation.ExitFindings, invocation.ExitCode(err), "%v", err)
	for _, want := range []string{
		"its id is milan", "the clocks of both clusters agree", "more than one minor version apart, upgrade the older one with refractctl install",
		"has no ForeignCluster for milan, so nothing is reflected: join them with refractctl peer", "has no ForeignCluster for bergamo",
	} {
		assert.Contains(t, out, want)
	}

	known := func(c client.Client, id string, status core.ConditionStatus, message string) {
		cluster := &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: core.ForeignClusterSpec{ClusterID: core.ClusterID(id)}}
		require.NoError(t, c.Create(t.Context(), cluster))
		t.Cleanup(func() { assert.NoError(t, c.Delete(context.WithoutCancel(t.Context()), cluster)) })
		cluster.Status.Conditions = []core.Condition{{Type: core.APIServerStatusCondition, Status: status, Reason: "Tested", Message: message, LastTransitionTime: metav1.Now()}}
		require.NoError(t, c.Status().Update(t.Context(), cluster))
	}
	known(here, "milan", core.ConditionStatusError, "milan does not answer")
	known(there, "bergamo", core.ConditionStatusError, "no heartbeat arrives")
	out, _, _ = refractctl(t, both...)
	assert.NotContains(t, out, "has no ForeignCluster")
	assert.Contains(t, out, "APIServerStatus is Tested: milan does not answer")
	assert.Regexp(t, "ForeignCluster bergamo in .*APIServerStatus is Tested: no heartbeat arrives", out)
}
