// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestVirtualNodeOfAnotherTool checks that a VirtualNode that liqoctl has created gets the ServiceAccount and the roles
// of its virtual kubelet, which accesses the provider with the Secret that the VirtualNode refers to. The VirtualNode
// itself is not changed, and flags that would change it are refused.
func TestVirtualNodeOfAnotherTool(t *testing.T) {
	connection := side(t, testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})[0])
	rome, milan := inspected(t, "rome", connection), absent(t, "milan")
	require.NoError(t, cluster.NewWriter(rome).CreateTenant(t.Context(), milan))
	tenant := wire.TenantNamespace("milan")
	vn := &offloading.VirtualNode{ObjectMeta: cluster.Meta(tenant, "more", nil), Spec: offloading.VirtualNodeSpec{ClusterID: "milan", CreateNode: ptr.To(false)}}
	vn.Labels = nil
	require.NoError(t, rome.Client.Create(t.Context(), vn))
	admit := func(o *Options) error {
		p := newPair(rome, milan, func(line string) { t.Log(line) })
		other, err := p.findOthersNode(t.Context(), "more")
		require.NoError(t, err)
		require.NotNil(t, other)
		return p.admitNode(t.Context(), o, other)
	}
	require.ErrorContains(t, admit(&Options{}), "has no spec.kubeconfigSecretRef: set it to the Secret of the peering, name: kubeconfig-controlplane-milan")
	vn.Spec.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: "kubeconfig-own"}
	require.NoError(t, rome.Client.Update(t.Context(), vn))
	require.ErrorContains(t, admit(&Options{Resources: corev1.ResourceList{"cpu": resource.MustParse("8")}}), "was not created by refractctl, which does not change it")
	require.ErrorContains(t, admit(&Options{Node: NodeOptions{Labels: map[string]string{"tier": "gold"}}}), "was not created by refractctl")
	account := client.ObjectKey{Namespace: tenant, Name: "more"}
	require.Error(t, rome.Client.Get(t.Context(), account, &corev1.ServiceAccount{}), "nothing was created by refused commands")
	require.NoError(t, admit(&Options{DryRun: true}))
	require.Error(t, rome.Client.Get(t.Context(), account, &corev1.ServiceAccount{}), "nor by a dry run")

	for range 2 { // in the second pass, all objects already exist
		require.NoError(t, admit(&Options{}))
	}
	require.NoError(t, rome.Client.Get(t.Context(), account, &corev1.ServiceAccount{}))
	role := &rbacv1.Role{}
	require.NoError(t, rome.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: rbac.VirtualKubeletTenant().Named("liqo") + "-more"}, role))
	var secrets []string
	for _, rule := range role.Rules {
		if strings.Join(rule.Resources, "") == "secrets" {
			secrets = append(secrets, rule.ResourceNames...)
		}
	}
	assert.Equal(t, []string{"kubeconfig-own"}, secrets)
	manager := &rbacv1.Role{}
	require.NoError(t, rome.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: rbac.ControllerManagerTenant().Named("liqo") + "-kubeconfig-own"}, manager), "the controller manager opens it, too")
	assert.Equal(t, "more", manager.Labels[wire.VirtualNodeLabel], "and it goes with the virtual node")
	after := &offloading.VirtualNode{}
	require.NoError(t, rome.Client.Get(t.Context(), client.ObjectKeyFromObject(vn), after))
	assert.Equal(t, vn.ResourceVersion, after.ResourceVersion)

	vn.Labels = map[string]string{cluster.ManagedByLabel: cluster.ManagedBy}
	require.NoError(t, rome.Client.Update(t.Context(), vn))
	ours, err := newPair(rome, milan, nil).findOthersNode(t.Context(), "more")
	require.NoError(t, err)
	assert.Nil(t, ours, "one of refractctl is changed as usual")
}
