// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRefusalsAreShort checks that a refusal with its remedy fits into an Event and a condition, whatever values of the
// consumer it quotes.
func TestRefusalsAreShort(t *testing.T) {
	p, err := NewPolicy(Options{})
	require.NoError(t, err)
	refusal := p.CheckPod(&corev1.Namespace{}, nil, nil, map[string]any{"priorityClassName": strings.Repeat("x", 100_000)})
	if refusal == nil {
		t.Fatal("the pod is allowed")
	}
	text := refusal.Error()
	if len(text) > 1024 || !strings.HasSuffix(text, refusal.Remedy) {
		t.Errorf("%d bytes: %.80s … %s", len(text), text, text[max(0, len(text)-80):])
	}
}

// TestTrustedMetadata checks that the refusal names the trusted key, and the setting that allows it. Metadata that no
// component trusts must not be refused.
func TestTrustedMetadata(t *testing.T) {
	p, err := NewPolicy(Options{})
	require.NoError(t, err)
	spec := map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1"}}}
	trusting := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"tenants.refract.io/allowed-annotations": "karpenter.sh/*"}}}
	for field, c := range map[string]struct {
		labels, annotations map[string]string
		namespace           *corev1.Namespace
	}{
		"metadata.labels[istio.io/rev]":                     {map[string]string{"app": "web", "istio.io/rev": "a"}, nil, &corev1.Namespace{}},
		"metadata.annotations[karpenter.sh/do-not-disrupt]": {nil, map[string]string{"karpenter.sh/do-not-disrupt": "true", "note": "one"}, &corev1.Namespace{}},
		"metadata.annotations[iam.amazonaws.com/role]":      {nil, map[string]string{"iam.amazonaws.com/role": "a", "karpenter.sh/do-not-disrupt": "true"}, trusting},
	} {
		refusal := p.CheckPod(c.namespace, c.labels, c.annotations, spec)
		if refusal == nil || refusal.Field != field || !strings.Contains(refusal.Error(), "--tenant-limit allowed-") {
			t.Errorf("%s: %v", field, refusal)
		}
	}
	for _, namespace := range []*corev1.Namespace{{}, trusting} {
		if refusal := p.CheckPod(namespace, map[string]string{"app": "web"}, map[string]string{"prometheus.io/scrape": "true"}, spec); refusal != nil {
			t.Error(refusal)
		}
	}
	if refusal := p.CheckPod(trusting, nil, map[string]string{"karpenter.sh/do-not-disrupt": "true"}, spec); refusal != nil {
		t.Error(refusal)
	}
}

// TestInvalidLimits checks that an invalid limit allows nothing, and that denied keys are still dropped.
func TestInvalidLimits(t *testing.T) {
	p, err := NewPolicy(Options{})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"tenants.refract.io/denied-labels": "a, b"}}}
	if refusal := p.CheckPod(namespace, nil, nil, map[string]any{}); refusal == nil || !strings.Contains(refusal.Error(), "tenants.refract.io/denied-labels") {
		t.Errorf("%v", refusal)
	}
	labels, annotations := map[string]string{"app": "web", "istio.io/rev": "a"}, map[string]string{"note": "one", "linkerd.io/inject": "disabled"}
	if refusal := p.DropDenied(namespace, labels, annotations); refusal == nil {
		t.Error("nothing is reported")
	}
	require.Equal(t, map[string]string{"app": "web"}, labels)
	require.Equal(t, map[string]string{"note": "one"}, annotations)
}
