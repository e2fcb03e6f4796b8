// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/doctor"
	"github.com/refract-project/refract/internal/rbac"
)

// manager is a controller manager that does not run, as the chart installs it in a namespace.
func manager(t *testing.T, namespace, id string) *appsv1.Deployment {
	t.Helper()
	version, err := doctor.Version()
	require.NoError(t, err)
	labels := map[string]string{"app.kubernetes.io/name": "refract", "app.kubernetes.io/instance": "refract", "app.kubernetes.io/component": "controller-manager"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refract-controller-manager", Labels: map[string]string{"app.kubernetes.io/version": version}}}
	for key, value := range labels {
		d.Labels[key] = value
	}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.ServiceAccountName = "refract-controller-manager"
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "controller-manager", Image: "refract/controller-manager", Args: []string{"--cluster-id=" + id, "--vk-options-default-template=liqo/default"}}}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	create(t, d)
	t.Cleanup(func() { assert.NoError(t, admin(t).Delete(context.WithoutCancel(t.Context()), d)) })
	return d
}

func TestDoctor(t *testing.T) {
	c := admin(t)
	installed := manager(t, "examined", "rome")
	out, _, err := refractctl(t, onCluster("doctor")...)
	require.Equal(t, exitFindings, exitCode(err), "%v", err)
	for _, want := range []string{
		"as refractctl", "as that of this computer", "they are enough for refractctl peer", "ServiceAccount examined/refract-controller-manager may not ",
		"get pods, nor ", "run refractctl install, which brings its roles and their bindings up to date",
	} {
		assert.Contains(t, out, want)
	}
	// An API server adds defaults, which are no difference.
	assert.NotContains(t, out, "CRD ")

	clientset, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	m := rbac.Manager{Prefix: "examined", Namespace: "examined", Subject: rbac.ServiceAccount("examined", "refract-controller-manager")}
	require.NoError(t, rbac.Install(t.Context(), clientset, append(m.Objects(), m.VirtualNodes()...)...))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(installed), installed))
	before := installed.DeepCopy()
	installed.Labels["app.kubernetes.io/version"] = "0.0.1"
	installed.Spec.Template.Spec.Containers[0].Args = append(installed.Spec.Template.Spec.Containers[0].Args, "--remote-cluster-role=examined-virtual-kubelet-remote")
	require.NoError(t, c.Patch(t.Context(), installed, client.MergeFrom(before)))
	create(t, &plugins.PeerNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "examined", Name: "milan"}, Spec: plugins.PeerNetworkSpec{ClusterID: "milan", Mode: plugins.NoNetwork}})
	out, _, _ = refractctl(t, onCluster("doctor", "--remote-kubeconfig="+cluster.Kubeconfig())...)
	for _, want := range []string{
		"upgrade the cluster with refractctl install, providers before consumers", "ServiceAccount examined/refract-controller-manager has them all",
		"PeerNetwork examined/milan", "are the same cluster: name another one as the provider", "the clocks of both clusters agree", "the versions go together",
	} {
		assert.Contains(t, out, want)
	}

	out, _, _ = refractctl(t, onCluster("doctor", "--as=viewer", "--as-group=system:masters")...)
	assert.Contains(t, out, "has them all")
	_, _, err = refractctl(t, onCluster("doctor", "--remote-context=nowhere")...)
	assert.ErrorContains(t, err, "the other cluster: ")
}
