// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/test/support/testenv"
)

var consumer = controllertest.Cluster{
	ID:      "consumer",
	Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer)) }

// tenants maps the providers of the tests to their tenant namespaces. Each provider is only used in one test.
var tenants = map[string]string{}

// tenantOf makes the namespace the tenant namespace of a provider that has none yet, and returns the namespace. If the
// namespace belongs to another provider, a new namespace is used instead. The provider's NamespaceMap is deleted after
// the test. Otherwise, the provider would be in the status of NamespaceOffloadings in later tests, and would disappear
// together with its last virtual node.
func tenantOf(t *testing.T, namespace, provider string) string {
	t.Helper()
	if tenants[provider] != "" {
		return namespace
	}
	for _, taken := range tenants {
		if taken == namespace {
			namespace = consumer.Namespace(t)
			break
		}
	}
	tenants[provider] = namespace
	consumer.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, fmt.Sprintf(
		`{"metadata":{"labels":{%q:"true",%q:%q}}}`, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, provider))
	t.Cleanup(func() {
		nm := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: provider}}
		cleanup(t, nm)
		release(t, nm)
	})
	return namespace
}

// virtualNode creates a VirtualNode in the tenant namespace of its provider (see tenantOf). If labels are given, the
// VirtualNode specifies them, and a Node with these labels is created, too.
func virtualNode(t *testing.T, tenant, name, provider string, labels map[string]string) *offloading.VirtualNode {
	t.Helper()
	tenant = tenantOf(t, tenant, provider)
	vn := &offloading.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name},
		Spec:       offloading.VirtualNodeSpec{ClusterID: core.ClusterID(provider), Labels: labels},
	}
	consumer.Create(t, vn)
	t.Cleanup(func() { cleanup(t, vn) })
	if labels != nil {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType}}}
		for key, value := range labels {
			node.Labels[key] = value
		}
		consumer.Create(t, node)
		t.Cleanup(func() { cleanup(t, node) })
	}
	return vn
}

// cleanup deletes an object after the context of the test has ended.
func cleanup(t *testing.T, obj client.Object) {
	t.Helper()
	assert.NoErrorf(t, client.IgnoreNotFound(consumer.Client.Delete(context.WithoutCancel(t.Context()), obj)), "deleting %s", obj.GetName())
}

// release removes the finalizers of an object that is being deleted.
func release(t *testing.T, obj client.Object) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	assert.NoErrorf(t, client.IgnoreNotFound(consumer.Client.Patch(context.WithoutCancel(t.Context()), obj, patch)), "releasing %s", obj.GetName())
}

func offload(t *testing.T, namespace string, spec offloading.NamespaceOffloadingSpec) *offloading.NamespaceOffloading {
	t.Helper()
	nso := &offloading.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName}, Spec: spec,
	}
	consumer.Create(t, nso)
	t.Cleanup(func() {
		left := nso.DeepCopy()
		cleanup(t, left)
		release(t, left)
	})
	return nso
}

// in returns a node selector that selects nodes by one label.
func in(key string, values ...string) corev1.NodeSelector {
	return corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}},
	}}}
}

// awaitMapped waits until the namespace is mapped to the remote namespace. An empty name means no mapping.
func awaitMapped(t *testing.T, tenant, provider, namespace, remoteNamespace string) *offloading.NamespaceMap {
	t.Helper()
	nm := &offloading.NamespaceMap{}
	if own := tenants[provider]; own != "" {
		tenant = own
	}
	controllertest.Eventually(t, fmt.Sprintf("%s to be %q on %s", namespace, remoteNamespace, provider), func() error {
		err := consumer.Client.Get(t.Context(), types.NamespacedName{Namespace: tenant, Name: provider}, nm)
		if err != nil && (remoteNamespace != "" || !apierrors.IsNotFound(err)) {
			return err
		}
		if now := nm.Spec.DesiredMapping[namespace]; now != remoteNamespace {
			return fmt.Errorf("it is %q", now)
		}
		return nil
	})
	return nm
}

func awaitOffloadingPhase(t *testing.T, nso *offloading.NamespaceOffloading, want offloading.OffloadingPhaseType) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("phase %s", want), func() error {
		consumer.Get(t, nso, nso.Namespace, nso.Name)
		if nso.Status.OffloadingPhase != want || nso.Status.ObservedGeneration != nso.Generation {
			return fmt.Errorf("status is %+v", nso.Status)
		}
		return nil
	})
}

func answer(t *testing.T, nm *offloading.NamespaceMap, namespace string, phase offloading.MappingPhase) {
	t.Helper()
	status := fmt.Sprintf(`{"remoteNamespace":%q,"phase":%q}`, nm.Spec.DesiredMapping[namespace], phase)
	if phase == "" {
		status = "null"
	}
	consumer.PatchStatus(t, nm, fmt.Sprintf(`{"status":{"currentMapping":{%q:%s}}}`, namespace, status))
}

func scheduling(t *testing.T, namespace string) string {
	t.Helper()
	ns := &corev1.Namespace{}
	consumer.Get(t, ns, "", namespace)
	return ns.Labels[wire.SchedulingEnabledLabel]
}
