// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// TestLimitsOfTenants checks that the chart has a value for each limit, with the same default as the flag, and passes
// it to the controller manager.
func TestLimitsOfTenants(t *testing.T) {
	all := objects(t, values(t, "provider"))
	arguments := get[*appsv1.Deployment](t, all, "refract-controller-manager").Spec.Template.Spec.Containers[0].Args
	var limits []string
	for _, argument := range arguments {
		if name, _, _ := strings.Cut(strings.TrimPrefix(argument, "--tenant-"), "="); isLimit(name) {
			limits = append(limits, argument)
		}
	}
	var defaults []string
	for _, setting := range tenantlimits.Settings() {
		defaults = append(defaults, fmt.Sprintf("--%s=%s", setting.Flag(), setting.Default))
	}
	assert.ElementsMatch(t, defaults, limits)
}

// TestOfferedClassesAreAllowed checks that the classes that a provider offers are allowed, in addition to the classes
// in the values.
func TestOfferedClassesAreAllowed(t *testing.T) {
	vals := values(t, "provider")
	vals["storage"] = map[string]any{"enabled": true, "realStorageClassName": "fast"}
	vals["offloading"] = map[string]any{"reflection": map[string]any{
		"service": map[string]any{"loadBalancerClasses": []any{map[string]any{"name": "public", "default": true}}},
		"ingress": map[string]any{"ingressClasses": []any{map[string]any{"name": "nginx"}, map[string]any{"name": "haproxy"}}},
	}}
	vals["tenants"] = map[string]any{"storageClasses": []any{"slow", "fast"}, "loadBalancerClasses": []any{"internal"}}
	all := objects(t, vals)
	arguments := get[*appsv1.Deployment](t, all, "refract-controller-manager").Spec.Template.Spec.Containers[0].Args
	for _, argument := range []string{"--tenant-storage-classes=slow,fast", "--tenant-load-balancer-classes=internal,public", "--tenant-ingress-classes=nginx,haproxy"} {
		assert.Contains(t, arguments, argument)
	}
	policy := get[*admissionv1.ValidatingAdmissionPolicy](t, all, "refract-consumer-claims")
	assert.Contains(t, fmt.Sprint(policy.Spec.Validations), "'slow,fast'")

	vals["tenants"] = map[string]any{"storageClasses": []any{"*"}}
	mustFail(t, vals, "storageClasses")
}

func isLimit(name string) bool {
	_, err := tenantlimits.Lookup(name)
	return err == nil
}

func TestLimitsOfOneConsumer(t *testing.T) {
	vals := values(t, "provider")
	consumer := map[string]any{"clusterID": "rome", "limits": map[string]any{"schedulerNames": []any{"batch-*", "default-scheduler"}}}
	vals["consumers"] = []any{consumer}
	tenant := get[*corev1.Namespace](t, objects(t, vals), "liqo-tenant-rome")
	require.Equal(t, "batch-*,default-scheduler", tenant.Annotations["tenants.refract.io/scheduler-names"])

	consumer["createNamespace"] = false
	mustFail(t, vals, "set the annotations tenants.refract.io/NAME of the namespace")
}

// TestLimitsOfANamespace checks that annotations of a remote namespace override the limits of the chart for one
// consumer.
func TestLimitsOfANamespace(t *testing.T) {
	h := hold(t)
	rome := h.as("rome-kubelet", "rome")
	batch := shadow(remoteNamespace, func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.SchedulerName = "batch-scheduler" })
	h.refused(rome, batch, "spec.pod.schedulerName")
	annotate := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"tenants.refract.io/scheduler-names":%q}}}`, value)
		h.must(h.admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}}, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	create := func() error { return rome.Create(t.Context(), batch.DeepCopy(), client.DryRunAll) }
	for value, allowed := range map[string]bool{"batch-*": true, "*": true, "default-scheduler,batch-scheduler": true, "batch": false, "*-default": false, "": false} {
		annotate(value)
		says := "spec.pod.schedulerName"
		if allowed {
			says = ""
		}
		h.attempt("a pod of another scheduler, with limit "+value, says, create)
	}

	manager := h.as(fmt.Sprintf("system:serviceaccount:%s:%s-controller-manager", releaseNamespace, releaseName), "system:serviceaccounts", "system:authenticated")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tenants.refract.io/scheduler-names":"*"}}}`))
	h.must(manager.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}}, patch, client.DryRunAll))
	h.attempt("setting limits of another owner's namespace", "may change only", func() error {
		return manager.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"}}, patch, client.DryRunAll)
	})
}

// TestDefaultsOfNamespaces checks that consumers cannot change the default objects that the controller manager
// creates in their namespaces, and that the controller manager cannot create such objects in any other namespace.
func TestDefaultsOfNamespaces(t *testing.T) {
	h := hold(t)
	egress := func(namespace, name string) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	rome := h.as("rome-kubelet", "rome")
	for _, name := range wire.EgressPolicyNames() {
		h.refused(rome, egress(remoteNamespace, name), "belongs to this cluster")
	}
	h.must(rome.Create(t.Context(), egress(remoteNamespace, "web"), client.DryRunAll))
	h.must(h.admin.Create(t.Context(), egress(remoteNamespace, "refract-egress")))
	h.attempt("deleting the policy of the provider", "belongs to this cluster", func() error {
		return rome.Delete(t.Context(), egress(remoteNamespace, "refract-egress"), client.DryRunAll)
	})
	manager := h.as(fmt.Sprintf("system:serviceaccount:%s:%s-controller-manager", releaseNamespace, releaseName), "system:serviceaccounts", "system:authenticated")
	limits := func(namespace, name string) *corev1.LimitRange {
		return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	h.refused(manager, egress("somebody-elses", "refract-egress"), "writes only its own")
	h.refused(manager, limits("somebody-elses", "refract-limits"), "writes only its own")
	h.refused(manager, limits(remoteNamespace, "other"), "writes only its own")
	h.must(manager.Create(t.Context(), limits(remoteNamespace, "refract-limits"), client.DryRunAll))
	h.must(manager.Create(t.Context(), egress(joinedNamespace, "refract-egress"), client.DryRunAll))
}
