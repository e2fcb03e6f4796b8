// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestChanged(t *testing.T) {
	before := metav1.ObjectMeta{ResourceVersion: "1", UID: "u", Generation: 1, Labels: map[string]string{"a": "1"}}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a resync":               {func(p *corev1.Pod) { p.ResourceVersion = "1" }, true},
		"the echo of a status":   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, false},
		"another object":         {func(p *corev1.Pod) { p.UID = "v" }, true},
		"the spec":               {func(p *corev1.Pod) { p.Generation = 2 }, true},
		"a deletion":             {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, true},
		"a label":                {func(p *corev1.Pod) { p.Labels["a"] = "2" }, true},
		"an annotation":          {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "1"} }, true},
		"an owner":               {func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{UID: "o"}} }, true},
		"annotations, none left": {func(p *corev1.Pod) { p.Annotations = map[string]string{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := &corev1.Pod{ObjectMeta: *before.DeepCopy()}
			now.ResourceVersion = "2"
			tc.change(now)
			if got := Changed(event.UpdateEvent{ObjectOld: &corev1.Pod{ObjectMeta: before}, ObjectNew: now}); got != tc.want {
				t.Errorf("Changed = %v, want %v", got, tc.want)
			}
		})
	}
}
