// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/hostile/attacks"
)

// honest is the name of the permitted objects that consumers create.
const honest = "honest"

// refusesChange checks that a permitted object of the same resource cannot be changed into the object of an attack.
// Some resources have no permitted object.
func (l *clusters) refusesChange(consumer client.Client, attack *attacks.Attack, id, namespace string) {
	l.Helper()
	change, ok, err := attack.Change(id)
	require.NoError(l, err)
	kind, err := consumer.RESTMapper().KindFor(attack.Resource)
	require.NoError(l, err)
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if !ok || consumer.Get(l.Context(), client.ObjectKey{Namespace: namespace, Name: honest}, object) != nil {
		return
	}
	l.refused("change to "+attack.Name, attack.Refusal, func() error {
		return consumer.Patch(l.Context(), object, client.RawPatch(types.MergePatchType, change))
	})
}

// TestAHostileConsumerGetsNowhere sends forbidden requests with the identity of a consumer, in a cluster where
// refractctl has installed Refract. All of them must fail, while the requests of an honest consumer succeed.
func TestAHostileConsumerGetsNowhere(t *testing.T) {
	l := begin(t, map[string][]string{"milan": {"--network=gateway"}}, "rome", "milan")
	rome, milan := l.sides["rome"], l.sides["milan"]
	l.peer("rome", "milan")
	const remote = "shop-rome"
	l.offload("shop", wire.RemoteClusterIDLabel, "milan")
	l.create(rome, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first"}})
	l.arrives(milan, remote, "first")
	consumer := l.identity("rome", "milan")
	metadata := metav1.ObjectMeta{Namespace: remote, Name: honest}
	require.NoError(t, consumer.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metadata}))
	require.NoError(t, consumer.Create(t.Context(), &corev1.Service{ObjectMeta: metadata, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}))
	for _, attack := range attacks.OfConsumer() {
		namespace := remote
		if attack.Tenant {
			namespace = wire.TenantNamespace("rome")
		}
		object, err := attack.Object("rome", namespace)
		require.NoError(t, err)
		l.refused(attack.Name, attack.Refusal, func() error { return consumer.Create(t.Context(), object) })
		l.refusesChange(consumer, &attack, "rome", namespace)
	}
	for _, removal := range attacks.RemovalsByConsumer() {
		l.refused("deleting "+removal.Name, removal.Refusal, func() error {
			object := &unstructured.Unstructured{}
			kind, err := consumer.RESTMapper().KindFor(removal.Resource)
			if err != nil {
				return err
			}
			object.SetGroupVersionKind(kind)
			object.SetNamespace(remote)
			object.SetName(removal.Name)
			return consumer.Delete(t.Context(), object)
		})
	}
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
