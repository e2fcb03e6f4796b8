// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
)

// resolving starts a manager for which consumers have a resolver, and returns a remote namespace of the namespace shop
// of a consumer, and its tenant namespace.
func resolving(t *testing.T, consumer string) (namespace, tenant string) {
	t.Helper()
	tenant = wire.TenantNamespace(consumer)
	err := provider.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}})
	require.NoError(t, client.IgnoreAlreadyExists(err))
	manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, provider.Grant(t.Context(), manager.HomeNames(tenant)...))
	namespace = provider.Extended(t, consumer)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, fmt.Sprintf(`{"metadata":{"annotations":{%q:"shop"}}}`, wire.OriginalNameAnnotation))
	provider.StartManager(t, func(o *controllers.Options) { o.HomeDomains = map[string]string{"resolved": "rome.example"} })
	return namespace, tenant
}

func resolverService(tenant string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: wire.HomeNamesService},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}},
	}
}

// TestPodsUseTheResolverOfTheirConsumer checks that a pod waits for its resolver, and which pods use it.
func TestPodsUseTheResolverOfTheirConsumer(t *testing.T) {
	namespace, tenant := resolving(t, "resolved")
	waiting := shadowPod(namespace, "waiting")
	waiting.SetLabels(map[string]string{wire.OriginLabel: "resolved", wire.DestinationLabel: "provider"})
	provider.Create(t, waiting)
	provider.AwaitEvent(t, namespace, "ShadowPod", "waiting", wire.FailedCreatePodReason)
	assert.False(t, podExists(t, namespace, "waiting"), "a pod whose resolver has no address")

	service := resolverService(tenant)
	provider.Create(t, service)
	pod := awaitPod(t, waiting, "")
	assert.Equal(t, corev1.DNSNone, pod.Spec.DNSPolicy)
	require.NotNil(t, pod.Spec.DNSConfig)
	assert.Equal(t, []string{service.Spec.ClusterIP}, pod.Spec.DNSConfig.Nameservers)
	assert.Equal(t, []string{"shop.svc.rome.example", "svc.rome.example", "rome.example"}, pod.Spec.DNSConfig.Searches)
	assert.Equal(t, "ndots", pod.Spec.DNSConfig.Options[0].Name)

	for _, policy := range []corev1.DNSPolicy{corev1.DNSDefault, corev1.DNSNone} {
		own := shadowPod(namespace, "own-"+strings.ToLower(string(policy)))
		own.SetLabels(waiting.GetLabels())
		set(own, string(policy), "spec", "pod", "dnsPolicy")
		set(own, map[string]any{"nameservers": []any{"192.0.2.53"}}, "spec", "pod", "dnsConfig")
		provider.Create(t, own)
		pod := awaitPod(t, own, "")
		assert.Equal(t, policy, pod.Spec.DNSPolicy)
		assert.Equal(t, []string{"192.0.2.53"}, pod.Spec.DNSConfig.Nameservers)
	}
}

// TestPodsOfOtherConsumersDoNotUseTheResolver checks that the pods of a consumer without a resolver are created as
// before.
func TestPodsOfOtherConsumersDoNotUseTheResolver(t *testing.T) {
	namespace, _ := resolving(t, "unresolved")
	shadow := shadowPod(namespace, "before")
	shadow.SetLabels(map[string]string{wire.OriginLabel: "unresolved", wire.DestinationLabel: "provider"})
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	assert.Equal(t, corev1.DNSClusterFirst, pod.Spec.DNSPolicy)
	assert.Nil(t, pod.Spec.DNSConfig)
}
