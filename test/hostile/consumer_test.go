// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/hostile/attacks"
)

// A consumer tries what it may not do with its own identity, in a cluster that refractctl has installed, and gets nowhere. What an honest consumer
// does works meanwhile.
func TestAHostileConsumerGetsNowhere(t *testing.T) {
	l := begin(t, nil, "rome", "milan")
	rome, milan := l.sides["rome"], l.sides["milan"]
	l.peer("rome", "milan")
	const remote = "shop-rome"
	l.offload("shop", wire.RemoteClusterIDLabel, "milan")
	l.create(rome, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first"}})
	l.arrives(milan, remote, "first")
	consumer := l.identity("rome", "milan")
	for _, attack := range attacks.OfConsumer() {
		namespace := remote
		if attack.Tenant {
			namespace = wire.TenantNamespace("rome")
		}
		object, err := attack.Object("rome", namespace)
		require.NoError(t, err)
		l.refused(attack.Name, attack.Refusal, func() error { return consumer.Create(t.Context(), object) })
	}
	l.refused("removing the egress policy", "belongs to this cluster", func() error {
		return consumer.Delete(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: wire.EgressNetworkPolicy}})
	})
	l.refused("binding a role", "forbidden", func() error {
		return consumer.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "admin"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}})
	})
	l.refused("reading a Secret of the provider", "forbidden", func() error {
		return consumer.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "any"}, &corev1.Secret{})
	})

	l.create(rome, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "second"}})
	l.arrives(milan, remote, "second")
	shadows := &offloading.ShadowPodList{}
	require.NoError(t, milan.admin.List(t.Context(), shadows))
	assert.Empty(t, shadows.Items)
}
