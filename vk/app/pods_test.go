// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestAPodThatCannotBeReadHidesNoOther(t *testing.T) {
	pod := func(name string, spec any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
		}}
	}
	got := typedAll([]*unstructured.Unstructured{
		pod("odd", map[string]any{"containers": "none"}),
		pod("web", map[string]any{"nodeName": "milan"}),
	}, testr.New(t))
	if len(got) != 1 || got[0].Name != "web" || got[0].Spec.NodeName != "milan" {
		t.Errorf("got %v", got)
	}
}
