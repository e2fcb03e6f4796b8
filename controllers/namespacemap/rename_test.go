// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// namespacesOf returns the names of the namespaces that were created for a tenant namespace. It includes namespaces
// that are being deleted, which remain until removeNamespace is called, because no namespace controller runs in this
// test.
func namespacesOf(t *testing.T, home string) (names []string) {
	t.Helper()
	list := &corev1.NamespaceList{}
	if err := provider.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Annotations[wire.ManagedByNamespaceMapAnnotation] == home+"/provider" {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// removeNamespace removes a namespace that is being deleted, as the namespace controller does.
func removeNamespace(t *testing.T, name string) {
	t.Helper()
	namespace := &corev1.Namespace{}
	controllertest.Eventually(t, "the deletion of "+name, func() error {
		if err := provider.Client.Get(t.Context(), types.NamespacedName{Name: name}, namespace); err != nil {
			return err
		}
		if namespace.DeletionTimestamp == nil {
			return fmt.Errorf("it is not being deleted")
		}
		return nil
	})
	namespace.Spec.Finalizers = nil
	if err := provider.Client.SubResource("finalize").Update(t.Context(), namespace); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

func request(t *testing.T, nm *offloading.NamespaceMap, desired string) {
	t.Helper()
	provider.Patch(t, nm, `{"spec":{"desiredMapping":`+desired+`}}`)
}

// TestRenamedMappings checks that a mapping whose name changes gives up its previous namespace, so that neither the
// number of the consumer's namespaces nor its permissions increase.
func TestRenamedMappings(t *testing.T) {
	home := tenant(t, "rome")
	provider.StartManager(t, func(o *controllers.Options) { o.Tenancy.Limits = limits(t, tenantlimits.MaxNamespaces, "1") })
	nm := replicated(home, "rome", map[string]string{"shop": home + "-1"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
	for n := 2; n <= 4; n++ {
		before, after := fmt.Sprintf("%s-%d", home, n-1), fmt.Sprintf("%s-%d", home, n)
		request(t, nm, fmt.Sprintf(`{"shop":%q}`, after))
		awaitPhases(t, nm, phases{"shop": offloading.MappingTerminating})
		if name := nm.Status.CurrentMapping["shop"].RemoteNamespace; name != before {
			t.Errorf("the status names %s while %s is being deleted", name, before)
		}
		if !isAbsent(t, after) {
			t.Errorf("there is %s beside %s", after, before)
		}
		removeNamespace(t, before)
		awaitPhases(t, nm, phases{"shop": offloading.MappingAccepted})
		if names := namespacesOf(t, home); len(names) != 1 || names[0] != after {
			t.Errorf("namespaces %v, want %s", names, after)
		}
	}
}

// TestTerminatingNamespacesCount checks that a namespace whose deletion the consumer blocks counts towards the
// consumer's maximum until it is gone.
func TestTerminatingNamespacesCount(t *testing.T) {
	home := tenant(t, "rome")
	provider.StartManager(t, func(o *controllers.Options) { o.Tenancy.Limits = limits(t, tenantlimits.MaxNamespaces, "1") })
	nm := replicated(home, "rome", map[string]string{"a": home + "-a"})
	provider.Create(t, nm)
	awaitPhases(t, nm, phases{"a": offloading.MappingAccepted})
	request(t, nm, fmt.Sprintf(`{"a":null,"b":%q}`, home+"-b"))
	awaitPhases(t, nm, phases{"a": offloading.MappingTerminating, "b": offloading.MappingCreationLoopBackOff})
	if !isAbsent(t, home+"-b") {
		t.Error("there are two namespaces")
	}
	removeNamespace(t, home+"-a")
	awaitPhases(t, nm, phases{"b": offloading.MappingAccepted})
}

// TestNamespacesThatAreLeftBehind checks that namespaces that are in no NamespaceMap are counted and reported. They are
// not deleted, because they may contain data.
func TestNamespacesThatAreLeftBehind(t *testing.T) {
	home := tenant(t, "rome")
	forgotten := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home + "-forgotten", Labels: map[string]string{wire.RemoteClusterIDLabel: "rome"},
		Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: home + "/provider", wire.OriginalNameAnnotation: "shop"}}}
	provider.Create(t, forgotten)
	provider.StartManager(t, func(o *controllers.Options) { o.Tenancy.Limits = limits(t, tenantlimits.MaxNamespaces, "1") })
	nm := replicated(home, "rome", map[string]string{"shop": home + "-shop"})
	provider.Create(t, nm)
	provider.AwaitEvent(t, home, "NamespaceMap", "provider", "NamespaceLeftBehind")
	awaitPhases(t, nm, phases{"shop": offloading.MappingCreationLoopBackOff})
	provider.Get(t, forgotten, "", forgotten.Name)
	if forgotten.DeletionTimestamp != nil {
		t.Error("the namespace is deleted")
	}
}

// TestNamesOfAddOns checks that consumers can use names of add-ons only if they end with the ID of the consumer, or if
// the provider allows them.
func TestNamesOfAddOns(t *testing.T) {
	home := tenant(t, "rome")
	provider.StartManager(t)
	desired, want := map[string]string{"own": "cert-manager-rome"}, phases{"own": offloading.MappingAccepted}
	for _, name := range []string{"cert-manager", "istio-system", "argocd", "longhorn-system", "vault", "my-operator"} {
		desired[name], want[name] = name, offloading.MappingCreationLoopBackOff
	}
	nm := replicated(home, "rome", desired)
	provider.Create(t, nm)
	awaitPhases(t, nm, want)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, `{"metadata":{"annotations":{"tenants.refract.io/reserved-namespaces":"istio-*"}}}`)
	want["vault"], want["cert-manager"], want["argocd"], want["longhorn-system"], want["my-operator"] =
		offloading.MappingAccepted, offloading.MappingAccepted, offloading.MappingAccepted, offloading.MappingAccepted, offloading.MappingAccepted
	awaitPhases(t, nm, want)

	// If the rules become stricter, existing namespaces are kept.
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, `{"metadata":{"annotations":{"tenants.refract.io/reserved-namespaces":"*","tenants.refract.io/namespace-names":""}}}`)
	request(t, nm, `{"late":"late-shop"}`)
	want["late"] = offloading.MappingCreationLoopBackOff
	awaitPhases(t, nm, want)
	provider.Get(t, &rbacv1.RoleBinding{}, "vault", home)
}
