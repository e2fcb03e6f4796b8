// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/vk/reflection"
)

// TestCertificatesFromNothing starts without any definitions or permissions, and only follows the instructions in the
// conditions. It checks that these instructions are sufficient for the reflection of certificates.
func TestCertificatesFromNothing(t *testing.T) {
	l := newLab(t).start()
	// The test uses its own API group, because another test uses the real group of cert-manager.
	const name, kind = "certificates.cert-manager.example", "Certificate.cert-manager.example"
	l.reflect(name, "{group: cert-manager.example, version: v1, resource: certificates}")
	l.condition(name, pluginsv1alpha1.MissingDefinitionReason, "this cluster (rome) has no "+name)

	l.define(l.local, strings.ReplaceAll(string(must(os.ReadFile("testdata/certificates.yaml"))(t)), "cert-manager.io", "cert-manager.example"))
	l.condition(name, pluginsv1alpha1.MissingDefinitionReason, "cluster milan has no "+name, "set spec.copyDefinition to true")

	l.change(name, "{copyDefinition: true}")
	t.Cleanup(func() { l.undefine(l.remote, name) })
	l.follow(l.condition(name, pluginsv1alpha1.MissingPermissionReason, "cluster milan does not let", "remote-clusterwide", "customresourcedefinitions").Message)

	missing := l.condition(name, pluginsv1alpha1.MissingPermissionReason, "this cluster (rome) does not let", "list, watch certificates in namespace "+l.shop, "virtual-kubelet-extended",
		"cluster milan does not let", "in namespace "+l.remoteNamespace, "virtual-kubelet-remote")
	if _, runs := l.engine.kind(kind); runs {
		t.Error("the engine was started without permissions")
	}
	copied := must(l.remote.dynamic.Resource(definitionsResource).Get(t.Context(), name, metav1.GetOptions{}))(t)
	if from := copied.GetAnnotations(); len(from) != 1 || from[CopiedFromAnnotation] != "rome" {
		t.Errorf("the copied definition has the annotations %v", from)
	}

	l.follow(missing.Message)
	l.condition(name, pluginsv1alpha1.ReflectingReason, "to cluster milan")
	l.reflecting(kind, func(k reflection.Kind) bool {
		return k.Source.Resource == "certificates" && k.Copy.GVR.Resource == "" && k.Copy.Mode == reflection.Apply && k.Policy == reflection.DenyList && k.Workers == 3
	})

	l.change(name, "{policy: AllowList, workers: 1}")
	l.reflecting(kind, func(k reflection.Kind) bool { return k.Policy == reflection.AllowList && k.Workers == 1 })

	l.change(name, "{statusBack: true}")
	missing = l.condition(name, pluginsv1alpha1.MissingPermissionReason, "let this virtual kubelet patch certificates, certificates/status in namespace "+l.shop+". Add")
	if _, runs := l.engine.kind(kind); !runs {
		t.Error("what ran was stopped for a permission that it did not need")
	}
	l.follow(missing.Message)
	l.condition(name, pluginsv1alpha1.ReflectingReason)

	require.NoError(t, l.local.dynamic.Resource(reflectedResources).Delete(t.Context(), name, metav1.DeleteOptions{}))
	l.stopped(kind)
	if said := l.engine.heard(); slices.Index(said, "stop "+kind) != len(said)-1 {
		t.Errorf("the engine heard %q", said)
	}
}
