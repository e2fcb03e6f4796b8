// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/namespaceoffloading"
)

// TestAForgottenNamespaceIsNotExtended checks that a namespace is not offloaded if its NamespaceOffloading exists only
// in the cache, because it would never be withdrawn.
func TestAForgottenNamespaceIsNotExtended(t *testing.T) {
	tenant, namespace, other := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	vn := virtualNode(t, tenant, "node-lucca", "lucca", map[string]string{})
	m := consumer.StartManager(t)
	offload(t, other, offloading.NamespaceOffloadingSpec{})
	nm := awaitMapped(t, vn.Namespace, "lucca", other, other+"-consumer")
	m.Stop(t)

	forgotten := &offloading.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName, UID: "forgotten", Finalizers: []string{wire.NamespaceOffloadingFinalizer}},
		Spec:       offloading.NamespaceOffloadingSpec{PodOffloadingStrategy: offloading.LocalAndRemotePodOffloadingStrategyType, NamespaceMappingStrategy: offloading.DefaultNameMappingStrategyType},
	}
	controller := namespaceoffloading.NewController(controllertest.Behind(consumer.Client, forgotten), consumer.Client, events.NewFakeRecorder(100),
		namespaceoffloading.Options{ClusterID: "consumer", Workers: 1, Clock: clock.RealClock{}})
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(forgotten)}
	_, err := controller.Reconcile(t.Context(), request)
	assert.ErrorContains(t, err, "making sure that NamespaceOffloading "+request.String()+" is as the cache shows it")
	consumer.Get(t, nm, nm.Namespace, "lucca")
	assert.NotContains(t, nm.Spec.DesiredMapping, namespace)

	actual := forgotten.DeepCopy()
	actual.UID = ""
	consumer.Create(t, actual) // a new object with the same name
	_, err = controller.Reconcile(t.Context(), request)
	assert.ErrorContains(t, err, "is not as the cache shows it")
	consumer.Get(t, nm, nm.Namespace, "lucca")
	assert.NotContains(t, nm.Spec.DesiredMapping, namespace)

	forgotten.UID, forgotten.ResourceVersion, forgotten.Generation = actual.UID, actual.ResourceVersion, actual.Generation
	_, err = controller.Reconcile(t.Context(), request)
	require.NoError(t, err)
	consumer.Get(t, nm, nm.Namespace, "lucca")
	assert.Equal(t, namespace+"-consumer", nm.Spec.DesiredMapping[namespace])

	// In the outdated cache, the object is being deleted, as before the restoration of etcd.
	outdated := namespaceoffloading.NewController(controllertest.Behind(consumer.Client, controllertest.Deleted(actual)), consumer.Client, events.NewFakeRecorder(100),
		namespaceoffloading.Options{ClusterID: "consumer", Workers: 1, Clock: clock.RealClock{}})
	_, err = outdated.Reconcile(t.Context(), request)
	assert.ErrorContains(t, err, "is not as the cache shows it")
	consumer.Get(t, nm, nm.Namespace, "lucca")
	assert.Contains(t, nm.Spec.DesiredMapping, namespace, "a namespace that is offloaded was withdrawn")
}
