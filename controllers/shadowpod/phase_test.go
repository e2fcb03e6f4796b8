// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/internal/podend"
)

// TestFinalPhaseOfAPodThatFailedAndWasDeletedUnseen checks that the phase of a pod that failed and was deleted while no
// controller ran is final only if the pod failed before its deletion.
func TestFinalPhaseOfAPodThatFailedAndWasDeletedUnseen(t *testing.T) {
	asked := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	ended := func(exit int32, after time.Duration) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exit, FinishedAt: metav1.NewTime(asked.Add(after)),
		}}}
	}
	unknown := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}}
	waiting := corev1.ContainerStatus{}
	for name, tc := range map[string]struct {
		policy     corev1.RestartPolicy
		reason     string
		init, main []corev1.ContainerStatus
		want       corev1.PodPhase
	}{
		"failed before":                 {policy: "Never", main: []corev1.ContainerStatus{ended(0, -time.Hour), ended(1, -time.Second)}, want: corev1.PodFailed},
		"stopped by its deletion":       {policy: "Never", main: []corev1.ContainerStatus{ended(1, -time.Hour), ended(143, time.Second)}},
		"in the same second":            {policy: "Never", main: []corev1.ContainerStatus{ended(143, 0)}},
		"an init container failed":      {policy: "Never", init: []corev1.ContainerStatus{ended(1, -time.Hour)}, main: []corev1.ContainerStatus{waiting}, want: corev1.PodFailed},
		"stopped before it began":       {policy: "Never", init: []corev1.ContainerStatus{ended(0, -time.Hour)}, main: []corev1.ContainerStatus{unknown}},
		"nothing is known":              {policy: "Never"},
		"it would have been restarted":  {policy: "OnFailure", main: []corev1.ContainerStatus{ended(1, -time.Hour)}},
		"its time was up":               {policy: "OnFailure", reason: "DeadlineExceeded", want: corev1.PodFailed},
		"its time was up, but a server": {policy: "Always", reason: "DeadlineExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			grace := int64(30)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: asked.Add(30 * time.Second)}, DeletionGracePeriodSeconds: &grace},
				Spec:       corev1.PodSpec{RestartPolicy: tc.policy},
				Status:     corev1.PodStatus{Phase: corev1.PodFailed, Reason: tc.reason, InitContainerStatuses: tc.init, ContainerStatuses: tc.main},
			}
			kept, err := trim(pod)
			require.NoError(t, err)
			if got := podend.FinalPhase(kept.(*corev1.Pod)); got != tc.want {
				t.Errorf("finalPhase = %q, want %q", got, tc.want)
			}
		})
	}
}

// TestMalformedShadowPodsAreComparedWithoutPanic checks that invalid parts of spec.pod, of which the API server
// validates little, are passed on to the pod, or ignored, but cause no panic.
func TestMalformedShadowPodsAreComparedWithoutPanic(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers:     []corev1.Container{{Name: "main", Image: "a"}},
		InitContainers: []corev1.Container{{Name: "init", Image: "a"}},
	}}
	for name, spec := range map[string]any{
		"nothing":            nil,
		"no object":          "pod",
		"containers no list": map[string]any{"containers": "none", "initContainers": int64(-1)},
		"items no objects":   map[string]any{"containers": []any{nil, "main", int64(1)}, "tolerations": []any{nil, "all", []any{}}},
		"values of other types": map[string]any{
			"containers":          []any{map[string]any{"name": int64(1), "image": true}, map[string]any{"name": "main", "image": map[string]any{}, "resources": map[string]any{"limits": "all"}}},
			"ephemeralContainers": []any{"debug", map[string]any{"name": int64(2)}}, "resources": "many",
			"tolerations":   []any{map[string]any{"key": int64(1)}},
			"restartPolicy": []any{"Never"}, "activeDeadlineSeconds": "soon", "hostAliases": map[string]any{},
		},
		"negative": map[string]any{"activeDeadlineSeconds": int64(-1)},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := kind.New()
			shadow.SetGeneration(2)
			shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
			shadow.Object["spec"] = map[string]any{"pod": spec}
			last := &asked.Record{}
			if changes := difference(shadow, pod, last, complete, nil).String(); strings.Contains(changes, "/image") {
				t.Errorf("changes = %s, want no image", changes)
			}
			if fields, ok := podSpec(shadow); ok {
				if sizes, containers := newSizes(fields, pod, last), newEphemeral(fields, pod); len(sizes)+len(containers) > 0 {
					t.Errorf("changes = %v, %s, want none of sizes and ephemeral containers", sizes, containers)
				}
			}
			c := NewController(nil, nil, nil, Options{APIServerMapper: mapper{}})
			if made, err := c.forge(t.Context(), shadow); err == nil && len(made.GetFinalizers()) > 0 {
				t.Errorf("finalizers = %q, want none", made.GetFinalizers())
			}
		})
	}
}

// mapper maps every address in the origin to another address.
type mapper struct{}

func (mapper) MapAPIServer(_ context.Context, origin, ip string) (string, error) {
	return ip + "-of-" + origin, nil
}

func TestForgeKeepsWhatNobodyHasHeardOfAndTheCacheAsItIs(t *testing.T) {
	spec := map[string]any{
		"fieldOfTomorrow": map[string]any{"a": int64(1)},
		"hostAliases": []any{
			map[string]any{"ip": "10.0.0.1", "hostnames": []any{"kubernetes.default.svc"}, "new": true},
			map[string]any{"ip": "10.0.0.2", "hostnames": []any{"database"}},
		},
	}
	shadow := kind.New()
	shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
	shadow.Object["spec"] = map[string]any{"pod": spec}
	before := shadow.DeepCopy()

	c := NewController(nil, nil, nil, Options{APIServerMapper: mapper{}})
	pod, err := c.forge(t.Context(), shadow)
	require.NoError(t, err)
	want := map[string]any{
		"fieldOfTomorrow":              map[string]any{"a": int64(1)},
		"automountServiceAccountToken": false,
		"hostAliases": []any{
			map[string]any{"ip": "10.0.0.1-of-home", "hostnames": []any{"kubernetes.default.svc"}, "new": true},
			map[string]any{"ip": "10.0.0.2", "hostnames": []any{"database"}},
		},
	}
	if diff := cmp.Diff(want, pod.Object["spec"]); diff != "" {
		t.Errorf("spec of the pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, shadow, cmp.AllowUnexported(unstructured.Unstructured{})); diff != "" {
		t.Errorf("the cached ShadowPod was changed (-want +got):\n%s", diff)
	}
}

// TestForgeKeepsAnAPIServerThatIsSetByValue checks that an address that the consumer has set by value is kept, because
// it is already valid in this cluster. The variables of the containers show that it was set by value.
func TestForgeKeepsAnAPIServerThatIsSetByValue(t *testing.T) {
	shadow := kind.New()
	shadow.SetLabels(map[string]string{wire.OriginLabel: "home"})
	spec := map[string]any{
		"hostAliases": []any{map[string]any{"ip": "192.0.2.7", "hostnames": []any{"kubernetes.default"}}, map[string]any{"ip": "10.0.0.1", "hostnames": []any{"kubernetes.default"}}},
		"containers":  []any{map[string]any{"name": "web", "env": []any{map[string]any{"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.7"}}}},
	}
	shadow.Object["spec"] = map[string]any{"pod": spec}
	pod, err := NewController(nil, nil, nil, Options{APIServerMapper: mapper{}}).forge(t.Context(), shadow)
	require.NoError(t, err)
	aliases, _, err := unstructured.NestedSlice(pod.Object, "spec", "hostAliases")
	require.NoError(t, err)
	var addresses []any
	for _, alias := range aliases {
		addresses = append(addresses, alias.(map[string]any)["ip"])
	}
	if diff := cmp.Diff([]any{"192.0.2.7", "10.0.0.1-of-home"}, addresses); diff != "" {
		t.Errorf("addresses of the host aliases (-want +got):\n%s", diff)
	}
}
