// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/refract-project/refract/api/authentication/v1beta1"
	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
)

// withoutFuture removes all fields, at any depth, whose names begin with "future".
func withoutFuture(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			if strings.HasPrefix(key, "future") {
				delete(v, key)
				continue
			}
			withoutFuture(child)
		}
	case []any:
		for _, child := range v {
			withoutFuture(child)
		}
	}
}

// missing reports the fields in want that got lacks. A Go type may write additional fields (zero values without
// omitempty), but must not lose any.
func missing(t *testing.T, path string, want, got any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for key, child := range w {
			// With omitempty, an explicit false or zero may be omitted.
			if value, found := g[key]; found || child != false && fmt.Sprint(child) != "0" {
				missing(t, path+"."+key, child, value)
			}
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			t.Errorf("%s: %d items, want %d", path, len(g), len(w))
			return
		}
		for i := range w {
			missing(t, fmt.Sprintf("%s[%d]", path, i), w[i], g[i])
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func setDefaults(t *testing.T, c client.Client) {
	tenant := &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "default"}, Spec: authv1beta1.TenantSpec{ClusterID: "plain"}}
	require.NoError(t, c.Create(t.Context(), tenant))
	if tenant.Spec.AuthzPolicy == nil || *tenant.Spec.AuthzPolicy != authv1beta1.KeysExchange || tenant.Spec.TenantCondition != authv1beta1.TenantActive {
		t.Errorf("unexpected defaults: %+v", tenant.Spec)
	}
	offloading := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: "offloading", Namespace: "kube-public"}}
	require.NoError(t, c.Create(t.Context(), offloading))
	spec := offloading.Spec
	if spec.NamespaceMappingStrategy != offloadingv1beta1.DefaultNameMappingStrategyType ||
		spec.PodOffloadingStrategy != offloadingv1beta1.LocalAndRemotePodOffloadingStrategyType {
		t.Errorf("unexpected defaults: %+v", spec)
	}
	// A Go client that omits a field must not count as changing it if the API server has set its default.
	offloading.Spec.PodOffloadingStrategy = offloadingv1beta1.LocalPodOffloadingStrategyType
	assert.NoError(t, c.Update(t.Context(), offloading), "changing the mutable strategy")
}

// refuse creates invalid objects. The API server's error must describe the problem.
func refuse(t *testing.T, c client.Client) {
	cases := []struct{ object, says string }{
		{`{apiVersion: core.liqo.io/v1beta1, kind: ForeignCluster, metadata: {name: a}, spec: {}}`, "spec.clusterID: Required"},
		{`{apiVersion: core.liqo.io/v1beta1, kind: ForeignCluster, metadata: {name: a}, spec: {clusterID: Milan}}`, "spec.clusterID in body should match"},
		{offloading("VirtualNode", `{clusterID: "-milan"}`), "spec.clusterID in body should match"},
		{offloading("VirtualNode", `{storageClasses: [{default: true}]}`), "storageClassName: Required"},
		{offloading("VirtualNode", `{template: text}`), "spec.template in body must be of type object"},
		{offloading("NamespaceOffloading", `{}`), "must be named offloading"},
		{named("offloading", `{namespaceMappingStrategy: Same}`), "spec.namespaceMappingStrategy: Unsupported value"},
		{named("offloading", `{podOffloadingStrategy: Anywhere}`), "spec.podOffloadingStrategy: Unsupported value"},
		{named("offloading", `{namespaceMappingStrategy: SelectedName}`), "remoteNamespaceName is required"},
		{offloading("NamespaceMap", `{desiredMapping: {a: 1}}`), "spec.desiredMapping.a in body must be of type string"},
		{offloading("ShadowPod", `{pod: text}`), "spec.pod in body must be of type object"},
		{offloading("ShadowEndpointSlice", `{template: {addressType: IPv5}}`), "spec.template.addressType: Unsupported value"},
		{offloading("Quota", `{user: "", resources: {}}`), "spec.user in body should be at least 1 chars"},
		{offloading("Quota", `{user: a, resources: {}, limitsEnforcement: none}`), "spec.limitsEnforcement: Unsupported value"},
		{offloading("VkOptionsTemplate", `{createNode: true, disableNetworkCheck: true, metricsEnabled: true}`), "spec.containerImage: Required"},
		{offloading("VkOptionsTemplate", `{createNode: true, disableNetworkCheck: true, metricsEnabled: true, containerImage: a, reflectorsConfig: {pod: {workers: 1, type: Deny}}}`),
			"spec.reflectorsConfig.pod.type: Unsupported value"},
		{asked("Tenant", `{clusterID: Rome}`), "spec.clusterID in body should match"},
		{asked("Tenant", `{clusterID: rome, authzPolicy: None}`), "spec.authzPolicy: Unsupported value"},
		{asked("Tenant", `{clusterID: rome, tenantCondition: Paused}`), "spec.tenantCondition: Unsupported value"},
		{asked("ResourceSlice", `{consumerClusterID: Rome}`), "spec.consumerClusterID in body should match"},
		{asked("Renew", `{identityType: Anybody}`), "spec.identityType: Unsupported value"},
		{reflected("wrong", `{group: example.org, version: v1, resource: widgets}`), "must be named <spec.resource>.<spec.group>"},
		{reflected("widgets", `{group: example.org, version: v1, resource: widgets}`), "must be named <spec.resource>.<spec.group>"},
		{reflected("pods", `{version: v1, resource: pods}`), "always reflected"},
		{reflected("events.events.k8s.io", `{group: events.k8s.io, version: v1, resource: events}`), "always reflected"},
		{reflected("ingresses.networking.k8s.io", `{group: networking.k8s.io, version: v1, resource: ingresses}`), "always reflected"},
		{reflected("networkpolicies.networking.k8s.io", `{group: networking.k8s.io, version: v1, resource: networkpolicies}`), "always reflected"},
		{reflected("poddisruptionbudgets.policy", `{group: policy, version: v1, resource: poddisruptionbudgets}`), "always reflected"},
		{reflected("shadowpods.offloading.liqo.io", `{group: offloading.liqo.io, version: v1beta1, resource: shadowpods}`), "cannot be reflected"},
		{reflected("widgets.example.org", `{group: example.org, version: one, resource: widgets}`), "spec.version in body should match"},
		{reflected("widgets.example.org", `{group: example.org, version: v1, resource: widgets, policy: Deny}`), "spec.policy: Unsupported value"},
		{reflected("widgets.example.org", `{group: example.org, version: v1, resource: widgets, workers: -1}`), "spec.workers in body should be greater"},
		{network("turin", `{clusterID: milan}`), "must be named after the cluster"},
		{network("milan", `{clusterID: milan, mode: Tunnel}`), "spec.mode: Unsupported value"},
		{network("milan", `{clusterID: milan, local: {podCIDRs: [10.1.0.0]}}`), "use CIDR notation"},
	}
	for _, tc := range cases {
		err := c.Create(t.Context(), parse(t, tc.object), client.DryRunAll)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want an error with %q", tc.object, err, tc.says)
		}
	}
}

func offloading(kind, spec string) string {
	return fmt.Sprintf(`{apiVersion: offloading.liqo.io/v1beta1, kind: %s, metadata: {name: wrong, namespace: default}, spec: %s}`, kind, spec)
}

func asked(kind, spec string) string {
	return fmt.Sprintf(`{apiVersion: authentication.liqo.io/v1beta1, kind: %s, metadata: {name: wrong, namespace: default}, spec: %s}`, kind, spec)
}

func reflected(name, spec string) string {
	return fmt.Sprintf(`{apiVersion: plugins.refract.io/v1alpha1, kind: ReflectedResource, metadata: {name: %s}, spec: %s}`, name, spec)
}

func network(name, spec string) string {
	return fmt.Sprintf(`{apiVersion: plugins.refract.io/v1alpha1, kind: PeerNetwork, metadata: {name: %s, namespace: default}, spec: %s}`, name, spec)
}

func named(name, spec string) string {
	return fmt.Sprintf(`{apiVersion: offloading.liqo.io/v1beta1, kind: NamespaceOffloading, metadata: {name: %s, namespace: kube-system}, spec: %s}`, name, spec)
}

// refuseChanges makes invalid changes to the samples that keepEveryField has stored.
func refuseChanges(t *testing.T, c client.Client) {
	cluster := &corev1beta1.ForeignCluster{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "milan"}, cluster))
	cluster.Spec.ClusterID = "turin"
	mustBeInvalid(t, c.Update(t.Context(), cluster), "clusterID is immutable")

	tenant := &authv1beta1.Tenant{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "rome"}, tenant))
	tenant.Spec.ClusterID = "turin"
	mustBeInvalid(t, c.Update(t.Context(), tenant), "clusterID is immutable")

	key := client.ObjectKey{Namespace: "default", Name: "offloading"}
	for says, change := range map[string]func(*offloadingv1beta1.NamespaceOffloadingSpec){
		"namespaceMappingStrategy is immutable": func(s *offloadingv1beta1.NamespaceOffloadingSpec) {
			s.NamespaceMappingStrategy = offloadingv1beta1.EnforceSameNameMappingStrategyType
		},
		"remoteNamespaceName is immutable": func(s *offloadingv1beta1.NamespaceOffloadingSpec) { s.RemoteNamespaceName = "other" },
	} {
		extended := &offloadingv1beta1.NamespaceOffloading{}
		require.NoError(t, c.Get(t.Context(), key, extended))
		change(&extended.Spec)
		mustBeInvalid(t, c.Update(t.Context(), extended), says)
	}
}

func mustBeInvalid(t *testing.T, err error, says string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want an error with %q", err, says)
	}
}

// haveStatus writes the statuses of the samples that keepEveryField has stored.
func haveStatus(t *testing.T, c client.Client) {
	shadow := &offloadingv1beta1.ShadowPod{}
	key := client.ObjectKey{Namespace: "default", Name: "web"}
	require.NoError(t, c.Get(t.Context(), key, shadow))
	before := shadow.Generation
	patch := client.MergeFrom(shadow.DeepCopy())
	shadow.Status.Phase = corev1.PodRunning
	require.NoError(t, c.Status().Patch(t.Context(), shadow, patch))
	require.NoError(t, c.Get(t.Context(), key, shadow))
	if shadow.Status.Phase != corev1.PodRunning || shadow.Generation != before {
		t.Errorf("phase %s, generation %d (was %d)", shadow.Status.Phase, shadow.Generation, before)
	}
	patch = client.MergeFrom(shadow.DeepCopy())
	shadow.Status.Phase = "Sleeping"
	mustBeInvalid(t, c.Status().Patch(t.Context(), shadow, patch), "status.phase: Unsupported value")

	cluster := &corev1beta1.ForeignCluster{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "milan"}, cluster))
	cluster.Status.Modules.Networking = corev1beta1.Module{Enabled: true, Conditions: []corev1beta1.Condition{
		{Type: corev1beta1.NetworkConnectionStatusCondition, Status: corev1beta1.ConditionStatusEstablished},
	}}
	require.NoError(t, c.Status().Update(t.Context(), cluster))
	if cluster.Status.Role != corev1beta1.UnknownRole {
		t.Errorf("role %q, want the default Unknown", cluster.Status.Role)
	}
	if got := corev1beta1.ConditionOf(cluster.Status.Modules.Networking.Conditions, corev1beta1.NetworkConnectionStatusCondition); got != corev1beta1.ConditionStatusEstablished {
		t.Errorf("network connection %q, want Established", got)
	}
}
