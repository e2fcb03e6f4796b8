// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"strings"
	"testing"
)

func TestConditions(t *testing.T) {
	t.Parallel()
	object := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "web", "example.com/tier": "gold"}},
		"spec":     map[string]any{"taints": []any{map[string]any{"key": "example.com/no", "effect": "NoExecute"}}, "replicas": int64(3)},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True", "message": "it is well"}}},
	}
	for condition, want := range map[string]string{
		"spec.replicas=3":                              "",
		"spec.replicas=4":                              `spec.replicas is "3", want "4"`,
		"spec.replicas!=3":                             `spec.replicas is "3", want !"3"`,
		"spec.taints[0].effect=NoExecute":              "",
		"spec.taints[1].effect=":                       "",
		"spec.paused=":                                 "",
		"spec.paused=true":                             `spec.paused is "", want "true"`,
		"metadata.labels/app=web":                      "",
		"metadata.labels/example.com/tier=gold":        "",
		"metadata.annotations/none=":                   "",
		"status.conditions[Ready].status=True":         "",
		"status.conditions[Ready].message~=is well":    "",
		"status.conditions[Ready].message~=is ill":     "want ~",
		"status.conditions[Other].status=":             "",
		"spec.taints[example.com/no].effect=NoExecute": "",
		"spec.replicas.x=1":                            "has no fields",
		"spec.taints[x=1":                              "not closed",
		"spec.replicas":                                "no PATH=VALUE",
		"=1":                                           "no PATH=VALUE",
	} {
		err := Check(object, condition)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", condition, err, want)
		}
	}
}
