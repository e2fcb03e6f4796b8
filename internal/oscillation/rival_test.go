// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package oscillation

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
)

func TestTheLastForeignWriterIsNamed(t *testing.T) {
	at := func(second int64) *metav1.Time { return &metav1.Time{Time: time.Unix(second, 0)} }
	entries := []metav1.ManagedFieldsEntry{
		{Manager: "helm", Operation: metav1.ManagedFieldsOperationUpdate, Time: at(1)},
		{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, Time: at(5)},
		{Manager: "cloud-controller", Operation: metav1.ManagedFieldsOperationUpdate, Time: at(8), Subresource: "status"},
		{Manager: wire.ReflectionFieldManager, Operation: metav1.ManagedFieldsOperationApply, Time: at(9)},
	}
	assert.Contains(t, DescribeWriter(entries, "", []string{"spec.ports"}), `field manager "kubectl-edit" (Update) wrote the same object at 1970-01-01T00:00:05Z; differing: spec.ports`)
	assert.Contains(t, DescribeWriter(entries, "status", nil), `"cloud-controller"`)
	assert.Contains(t, DescribeWriter(entries[3:], "", nil), "no other field manager is recorded")
}

func TestTheLikelyDeleterIsNamed(t *testing.T) {
	assert.Contains(t, DescribeDeleter(map[string]string{"app.kubernetes.io/instance": "shop"}, nil), "app.kubernetes.io/instance=shop, by which Argo CD")
	assert.NotContains(t, DescribeDeleter(map[string]string{"app": "shop"}, nil), "bears")
}

func TestDifferencesArePaths(t *testing.T) {
	desired := map[string]any{"spec": map[string]any{"type": "ClusterIP", "ports": []any{int64(80)}, "selector": map[string]any{"a": "b"}}}
	actual := map[string]any{"spec": map[string]any{"type": "NodePort", "ports": []any{int64(80)}, "selector": map[string]any{}, "extra": true}}
	assert.Equal(t, []string{"spec.selector.a", "spec.type"}, Differences(desired, actual, false))
	assert.Equal(t, []string{"spec.extra", "spec.selector.a", "spec.type"}, Differences(desired, actual, true))
	many := map[string]any{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}
	assert.Equal(t, []string{"a", "b", "c", "d", "e", "…"}, Differences(many, nil, false))
}

// TestOwnFieldManagersAreNoOtherWriters checks that Refract's own controllers do not count as other clients. Otherwise
// they would be reported as rivals.
func TestOwnFieldManagersAreNoOtherWriters(t *testing.T) {
	at := metav1.Now()
	own := []metav1.ManagedFieldsEntry{}
	for _, manager := range []string{wire.NamespaceMapFieldManager, wire.ShadowPodFieldManager, wire.PodStatusFieldManager, wire.ReflectionFieldManager} {
		own = append(own, metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at})
	}
	if HasOtherWriter(own, "") {
		t.Errorf("blamed: %s", DescribeWriter(own, "", nil))
	}
	earlier := metav1.NewTime(at.Add(-time.Hour))
	all := append(own, metav1.ManagedFieldsEntry{Manager: "opener", Operation: metav1.ManagedFieldsOperationUpdate, Time: &earlier})
	if text := DescribeWriter(all, "", nil); !HasOtherWriter(all, "") || !strings.Contains(text, `"opener" (Update)`) {
		t.Errorf("blamed: %s", text)
	}
}

// TestTheOwnerOfTheFieldsIsNamed checks that the client that owns a differing field is named, and not a client that
// wrote another field later. The keys of labels may contain dots.
func TestTheOwnerOfTheFieldsIsNamed(t *testing.T) {
	at := func(second int64) *metav1.Time { return &metav1.Time{Time: time.Unix(second, 0)} }
	entry := func(manager string, second int64, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: at(second), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	entries := []metav1.ManagedFieldsEntry{
		entry("labeler", 1, `{"f:metadata":{"f:labels":{".":{},"f:example.com/tier":{}}}}`),
		entry("tainter", 2, `{"f:spec":{"f:taints":{}}}`),
		entry("annotator", 3, `{"f:metadata":{"f:annotations":{"f:example":{}},"f:labels":{"f:example":{}}}}`),
	}
	for path, manager := range map[string]string{
		"metadata.labels.example.com/tier": "labeler",
		"spec.taints":                      "tainter",
		"metadata.annotations":             "annotator",
		"spec.unschedulable":               "annotator", // no client owns the field
	} {
		assert.Contains(t, DescribeWriter(entries, "", []string{path}), strconv.Quote(manager), path)
	}
}
