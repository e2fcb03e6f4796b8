// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// newKubelet returns the Deployment of a virtual kubelet in the tenant namespace of a provider.
func newKubelet(provider, account string) *appsv1.Deployment {
	labels := map[string]string{wire.ComponentLabel: wire.VirtualKubeletComponent, wire.VirtualNodeLabel: provider}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace(provider), Name: "vk-" + provider, Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "virtual-kubelet", Image: "registry.example.com/virtual-kubelet:1"}}},
		}},
	}
}

// TestAwaitKubeletsWithoutServiceAccounts checks that a command does not wait for a virtual kubelet whose
// ServiceAccount is missing, because only a user can create it. The ServiceAccount may also be deleted during the wait.
func TestAwaitKubeletsWithoutServiceAccounts(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-cuneo", Name: "cuneo"}}
	create(t, tenant("cuneo"), newKubelet("cuneo", "cuneo"))
	i := newInstaller(t, "nowhere", "refract")
	require.NoError(t, i.awaitKubelets(t.Context()))
	const warning = "Deployment liqo-tenant-cuneo/vk-cuneo: warning: it has no pods, because its ServiceAccount cuneo does not exist: run refractctl doctor"
	assert.Contains(t, i.texts(), warning)

	require.NoError(t, i.Client.Create(t.Context(), account))
	i.said = nil
	i.Progress = func(line string) {
		i.said = append(i.said, line)
		if strings.Contains(line, "0 of 1 replicas") {
			assert.NoError(t, i.Client.Delete(t.Context(), account))
		}
	}
	require.NoError(t, i.awaitKubelets(t.Context()))
	require.Len(t, i.said, 2)
	assert.Contains(t, i.said[1], warning)
}

// TestAwaitKubelets checks that a command waits for all virtual kubelets except one that is deleted.
func TestAwaitKubelets(t *testing.T) {
	kubelet := newKubelet("asti", "")
	create(t, tenant("asti"))
	i := newInstaller(t, "nowhere", "refract")
	require.NoError(t, i.Client.Create(t.Context(), kubelet))
	i.Progress = func(line string) {
		i.said = append(i.said, line)
		assert.NoError(t, i.Client.Delete(t.Context(), kubelet))
	}
	require.NoError(t, i.awaitKubelets(t.Context()))
	assert.Equal(t, []string{"Deployment liqo-tenant-asti/vk-asti: 0 of 1 replicas are up to date and available"}, i.said)

	create(t, newKubelet("asti", ""))
	ctx, cancel := context.WithCancel(t.Context())
	i.Progress = func(string) { cancel() }
	assert.ErrorIs(t, i.awaitKubelets(ctx), context.Canceled)
	_, err := i.describeKubelet(t.Context(), client.ObjectKey{Namespace: "liqo-tenant-asti", Name: "vk-other"})
	assert.NoError(t, err)
}

// afterAccount is a client that calls done after each read of a ServiceAccount.
type afterAccount struct {
	client.Client
	done func()
}

func (a *afterAccount) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := a.Client.Get(ctx, key, object, options...)
	if _, isAccount := object.(*corev1.ServiceAccount); isAccount {
		a.done()
	}
	return err
}

// TestDescribeKubeletDuringItsDeletion checks that a command does not fail if the Deployment of a virtual kubelet is
// deleted between two reads of its state.
func TestDescribeKubeletDuringItsDeletion(t *testing.T) {
	kubelet := newKubelet("biella", "biella")
	create(t, tenant("biella"), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kubelet.Namespace, Name: "biella"}})
	i := newInstaller(t, "nowhere", "refract")
	require.NoError(t, i.Client.Create(t.Context(), kubelet))
	c, deleted := i.Client, false
	i.Client = &afterAccount{c, func() {
		deleted = assert.NoError(t, c.Delete(t.Context(), kubelet))
	}}
	missing, err := i.describeKubelet(t.Context(), client.ObjectKeyFromObject(kubelet))
	require.NoError(t, err)
	assert.Empty(t, missing)
	assert.True(t, deleted)
}
