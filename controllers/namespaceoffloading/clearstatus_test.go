// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// TestStatusesOfAWithdrawnNamespace checks that the addresses that a provider has reported are removed when the
// namespace is withdrawn from the provider, even if the manager is started later. Addresses of other providers and of
// this cluster are kept.
func TestStatusesOfAWithdrawnNamespace(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	m := consumer.StartManager(t)
	virtualNode(t, tenant, "node-rieti", "rieti", map[string]string{"zone": "east"})
	virtualNode(t, tenant, "node-siena", "siena", map[string]string{"zone": "west"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	for _, provider := range []string{"rieti", "siena"} {
		answer(t, awaitMapped(t, tenant, provider, namespace, namespace+"-consumer"), namespace, offloading.MappingAccepted)
	}
	awaitOffloadingPhase(t, nso, offloading.ReadyOffloadingPhaseType)
	for name, from := range map[string]string{"of-rieti": "rieti", "of-siena": "siena", "ours": "consumer", "nobodys": ""} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}}}
		if from != "" {
			service.Annotations[wire.StatusFromAnnotation], service.Annotations[wire.StatusHashAnnotation] = from, "1"
		}
		ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: service.Annotations},
			Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "x", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}
		consumer.Create(t, service)
		consumer.Create(t, ingress)
		consumer.PatchStatus(t, service, `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}`)
		consumer.PatchStatus(t, ingress, `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}`)
	}
	shown := func(want ...string) {
		t.Helper()
		controllertest.Eventually(t, "the addresses", func() error {
			services, ingresses := &corev1.ServiceList{}, &networkingv1.IngressList{}
			if err := consumer.Client.List(t.Context(), services); err != nil {
				return err
			}
			if err := consumer.Client.List(t.Context(), ingresses); err != nil {
				return err
			}
			found := map[string]int{}
			for _, s := range services.Items {
				if s.Namespace == namespace && len(s.Status.LoadBalancer.Ingress) > 0 {
					found[s.Name]++
				}
			}
			for _, i := range ingresses.Items {
				if i.Namespace == namespace && len(i.Status.LoadBalancer.Ingress) > 0 {
					found[i.Name]++
				}
			}
			for _, name := range want {
				if found[name] != 2 {
					return fmt.Errorf("there are addresses of %v, want %v", found, want)
				}
			}
			if len(found) != len(want) {
				return fmt.Errorf("there are addresses of %v, want %v", found, want)
			}
			return nil
		})
	}
	shown("of-rieti", "of-siena", "ours", "nobodys")

	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["west"]}]}]}}}`)
	left := awaitMapped(t, tenant, "rieti", namespace, "")
	shown("of-rieti", "of-siena", "ours", "nobodys") // the addresses are kept while the remote namespace exists
	answer(t, left, namespace, "")
	shown("of-siena", "ours", "nobodys")

	m.Stop(t)
	consumer.Delete(t, nso)
	consumer.StartManager(t)
	answer(t, awaitMapped(t, tenant, "siena", namespace, ""), namespace, "")
	shown("ours", "nobodys")
}
