// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// admitted returns the status and the message of the condition Admitted of a ShadowPod.
func admitted(shadow *unstructured.Unstructured) (status, message string) {
	conditions, _, _ := unstructured.NestedSlice(shadow.Object, "status", "conditions")
	for _, item := range conditions {
		if c, _ := item.(map[string]any); c["type"] == "Admitted" {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["message"])
		}
	}
	return "", ""
}

// TestRefusesWhatTenantsMayNotRun checks that no pod is created if a consumer requests features that no tenant may use.
// A single Event names the field and the rule, and says who can change the rule.
func TestRefusesWhatTenantsMayNotRun(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	security := func(value map[string]any) []any {
		return []any{map[string]any{"name": "main", "image": "registry.example/main:1", "securityContext": value}}
	}
	for name, c := range map[string]struct {
		value  any
		fields []string
		says   string
	}{
		"host-pid":     {true, []string{"hostPID"}, "hostPID"},
		"host-network": {true, []string{"hostNetwork"}, "hostNetwork"},
		"host-ipc":     {true, []string{"hostIPC"}, "hostIPC"},
		"privileged":   {security(map[string]any{"privileged": true}), []string{"containers"}, "privileged"},
		"capability":   {security(map[string]any{"capabilities": map[string]any{"add": []any{"SYS_ADMIN"}}}), []string{"containers"}, "SYS_ADMIN"},
		"host-path":    {[]any{map[string]any{"name": "root", "hostPath": map[string]any{"path": "/"}}}, []string{"volumes"}, "hostPath"},
		"host-port":    {[]any{map[string]any{"name": "main", "image": "a", "ports": []any{map[string]any{"containerPort": int64(80), "hostPort": int64(80)}}}}, []string{"containers"}, "hostPort"},
		"claim": {[]any{map[string]any{"name": "data", "ephemeral": map[string]any{"volumeClaimTemplate": map[string]any{"spec": map[string]any{"storageClassName": ""}}}}},
			[]string{"volumes"}, "volumeClaimTemplate.spec.storageClassName"},
		"node":          {"control-plane-1", []string{"nodeName"}, "spec.pod.nodeName"},
		"node-critical": {"system-node-critical", []string{"priorityClassName"}, "system-node-critical"},
		"priority":      {int64(2000001000), []string{"priority"}, "spec.pod.priority"},
		"control-plane": {map[string]any{"node-role.kubernetes.io/control-plane": ""}, []string{"nodeSelector"}, "spec.pod.nodeSelector"},
		"tolerant":      {[]any{map[string]any{"operator": "Exists"}}, []string{"tolerations"}, "spec.pod.tolerations"},
		"endless":       {int64(31536000), []string{"terminationGracePeriodSeconds"}, "spec.pod.terminationGracePeriodSeconds"},
		"account":       {"pipeline", []string{"serviceAccountName"}, "spec.pod.serviceAccountName"},
		"storage":       {[]any{map[string]any{"name": "a", "nfs": map[string]any{"server": "10.0.0.1", "path": "/"}}}, []string{"volumes"}, "nfs"},
		"runtime":       {"kata", []string{"runtimeClassName"}, "spec.pod.runtimeClassName"},
	} {
		shadow := set(shadowPod(namespace, name), c.value, append([]string{"spec", "pod"}, c.fields...)...)
		provider.Create(t, shadow)
		controllertest.Eventually(t, "the refusal of "+name, func() error {
			provider.Get(t, shadow, namespace, name)
			status, message := admitted(shadow)
			if status != "False" || !strings.Contains(message, c.says) || !strings.Contains(message, ";") {
				return fmt.Errorf("the condition is %q: %s", status, message)
			}
			return nil
		})
		if podExists(t, namespace, name) {
			t.Errorf("%s: there is a pod", name)
		}
		controllertest.Eventually(t, "the Event about "+name, func() error { // the Event is written asynchronously
			if events := provider.Events(t, namespace, "ShadowPod", name); len(events) != 1 || !strings.Contains(fmt.Sprint(events), c.says) {
				return fmt.Errorf("the Events are %v, want one with %q", events, c.says)
			}
			return nil
		})
		if writes := m.Writes.About("POST", namespace, "/pods"); len(writes) != 0 {
			t.Errorf("%s: %q", name, writes)
		}
	}
}

// TestRefusesTrustedMetadata checks that a pod with labels or annotations that components of the provider trust is
// refused, unless the provider allows them for this consumer.
func TestRefusesTrustedMetadata(t *testing.T) {
	namespace, trusting := extended(t), extended(t)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: trusting}}, `{"metadata":{"annotations":{"tenants.refract.io/allowed-labels":"istio.io/*","tenants.refract.io/allowed-annotations":"iam.amazonaws.com/role"}}}`)
	provider.StartManager(t)
	for name, c := range map[string]struct {
		says                string
		labels, annotations map[string]string
	}{
		"label":      {"metadata.labels[istio.io/rev]", map[string]string{"istio.io/rev": "canary"}, nil},
		"annotation": {"metadata.annotations[iam.amazonaws.com/role]", nil, map[string]string{"iam.amazonaws.com/role": "admin"}},
	} {
		refused, allowed := shadowPod(namespace, name), shadowPod(trusting, name)
		for _, shadow := range []*unstructured.Unstructured{refused, allowed} {
			labels, annotations := shadow.GetLabels(), shadow.GetAnnotations()
			maps.Copy(labels, c.labels)
			maps.Copy(annotations, c.annotations)
			shadow.SetLabels(labels)
			shadow.SetAnnotations(annotations)
			provider.Create(t, shadow)
		}
		pod := awaitPod(t, allowed, "")
		if pod.Labels["istio.io/rev"] == "" && pod.Annotations["iam.amazonaws.com/role"] == "" {
			t.Errorf("what is allowed is missing: %v %v", pod.Labels, pod.Annotations)
		}
		controllertest.Eventually(t, "the refusal of the "+name, func() error {
			provider.Get(t, refused, namespace, name)
			if status, message := admitted(refused); status != "False" || !strings.Contains(message, c.says) || !strings.Contains(message, "allowed-") {
				return fmt.Errorf("the condition is %q: %s", status, message)
			}
			return nil
		})
		if podExists(t, namespace, name) {
			t.Errorf("%s: there is a pod", name)
		}
	}
}

// TestTokensOnRequest checks that pods get a token of this cluster's API server only if they request one.
func TestTokensOnRequest(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	for name, requested := range map[string]any{"silent": nil, "refusing": false, "requesting": true} {
		shadow := shadowPod(namespace, name)
		if requested != nil {
			set(shadow, requested, "spec", "pod", "automountServiceAccountToken")
		}
		provider.Create(t, shadow)
		pod := awaitPod(t, shadow, "")
		mounted := false
		for _, volume := range pod.Spec.Volumes {
			mounted = mounted || strings.HasPrefix(volume.Name, "kube-api-access-")
		}
		if mounted != (requested == true) {
			t.Errorf("%s: a token is mounted: %t", name, mounted)
		}
	}
}

// TestRefusesOtherOriginsAndNamespaces checks that the namespace determines the owner of a ShadowPod, regardless of the
// ShadowPod's labels, and that a namespace that is not offloaded has no owner.
func TestRefusesOtherOriginsAndNamespaces(t *testing.T) {
	namespace, foreign := extended(t), provider.Namespace(t)
	provider.StartManager(t)
	forged := shadowPod(namespace, "forged")
	forged.SetLabels(map[string]string{wire.OriginLabel: "somebody-else"})
	for _, shadow := range []*unstructured.Unstructured{forged, shadowPod(foreign, "elsewhere")} {
		provider.Create(t, shadow)
		controllertest.Eventually(t, "the refusal of "+shadow.GetName(), func() error {
			provider.Get(t, shadow, shadow.GetNamespace(), shadow.GetName())
			if status, _ := admitted(shadow); status != "False" {
				return fmt.Errorf("the condition is %q", status)
			}
			return nil
		})
		if podExists(t, shadow.GetNamespace(), shadow.GetName()) {
			t.Errorf("%s has a pod", shadow.GetName())
		}
	}
}

// TestAllowsWhatTheProviderAllows checks that the provider can allow features for all consumers, for one consumer, or
// for one namespace.
func TestAllowsWhatTheProviderAllows(t *testing.T) {
	allowed, labelled := extended(t), extended(t)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: labelled}}, fmt.Sprintf(`{"metadata":{"labels":{%q:"baseline"}}}`, tenancy.EnforceLabel))
	limits, err := tenantlimits.New(map[string]string{tenantlimits.HostNamespaces.Name: "hostPID"})
	require.NoError(t, err)
	provider.StartManager(t, func(o *controllers.Options) {
		o.Tenancy = tenancy.Options{PodSecurity: "restricted", Levels: map[string]string{"consumer": "privileged"}, Limits: limits}
	})
	shadow := set(shadowPod(allowed, "host"), true, "spec", "pod", "hostPID")
	provider.Create(t, shadow)
	awaitPod(t, shadow, "")
	shadow = set(shadowPod(labelled, "host"), true, "spec", "pod", "hostPID")
	provider.Create(t, shadow)
	controllertest.Eventually(t, "the refusal in the namespace with a level of its own", func() error {
		provider.Get(t, shadow, labelled, "host")
		if status, message := admitted(shadow); status != "False" || !strings.Contains(message, "baseline") {
			return fmt.Errorf("the condition is %q: %s", status, message)
		}
		return nil
	})
}
