// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestUrgentStatuses(t *testing.T) {
	status := func(phase, ready string) map[string]any {
		return map[string]any{"phase": phase, "conditions": []any{map[string]any{"type": "Ready", "status": ready}}}
	}
	ready, unready := status("Running", "True"), status("Running", "False")
	for name, tc := range map[string]struct {
		present, next map[string]any
		deleted, want bool
	}{
		"becomes Ready":          {unready, ready, false, false},
		"first status":           {nil, unready, false, false},
		"no longer Ready":        {ready, unready, false, true},
		"Ready is not reported":  {ready, map[string]any{"phase": "Running"}, false, true},
		"Succeeded":              {unready, status("Succeeded", "False"), false, true},
		"being deleted":          {unready, ready, true, true},
		"only the label is new":  {ready, nil, false, false},
		"label of what is ended": {status("Failed", "False"), nil, false, true},
	} {
		local := &unstructured.Unstructured{Object: map[string]any{}}
		if tc.deleted {
			local.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		}
		assert.Equal(t, tc.want, isUrgent(&podView{local: local, status: tc.present}, tc.next), name)
	}
}
